//! `:name`, `:'name'` and `:"name"` in SQL text, as psql has them: the value as it is, as a
//! string literal, and as a quoted identifier.

use std::collections::BTreeMap;

use crate::scan::{Kind, segments};

/// Replaces the variables that `values` knows; anything else (`::type`, `a[1:2]`, unknown
/// names, text in quotes and comments) stays as it is.
pub fn substitute(text: &str, values: &BTreeMap<String, String>) -> String {
    if values.is_empty() {
        return text.to_owned();
    }
    let parts: Vec<_> = segments(text).collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < parts.len() {
        let part = parts[i];
        let after_colon = i > 0 && parts[i - 1].kind == Kind::Code(':');
        if part.kind == Kind::Code(':')
            && !after_colon
            && let Some((value, used)) = variable(text, part.end, values)
        {
            out.push_str(&value);
            while i < parts.len() && parts[i].start < used {
                i += 1;
            }
            continue;
        }
        out.push_str(&text[part.start..part.end]);
        i += 1;
    }
    out
}

/// The replacement for the variable whose name starts at `at`, and where its text ends.
fn variable(text: &str, at: usize, values: &BTreeMap<String, String>) -> Option<(String, usize)> {
    let rest = &text[at..];
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let body = quote.map_or(rest, |_| &rest[1..]);
    let length = body.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(body.len());
    let value = values.get(&body[..length])?;
    let Some(quote) = quote else {
        return Some((value.clone(), at + length));
    };
    body[length..].starts_with(quote).then(|| {
        let doubled = value.replace(quote, &format!("{quote}{quote}"));
        (format!("{quote}{doubled}{quote}"), at + length + 2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_three_forms_and_nothing_else() {
        let values = BTreeMap::from([("n".to_owned(), "5".to_owned()), ("s".to_owned(), "o'k".to_owned())]);
        let cases = [
            ("LIMIT :n", "LIMIT 5"),
            ("a = :'s'", "a = 'o''k'"),
            ("FROM :\"s\"", "FROM \"o'k\""),
            ("x::n, ':n', -- :n", "x::n, ':n', -- :n"),
            (":unknown :'unknown'", ":unknown :'unknown'"),
        ];
        for (from, to) in cases {
            assert_eq!(substitute(from, &values), to);
        }
    }
}
