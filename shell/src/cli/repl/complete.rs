//! Completion: what could stand at the cursor.

use std::collections::BTreeSet;
use std::path::Path;

use thetis::{DatabaseMetaData, Open, RelationInfo, split};

use super::meta::{TABLE, Takes};

/// The place where the word at the cursor starts in `before`, and what could stand there. `pending`
/// are the lines of the statement before this one, `after` is what stands behind the cursor.
pub(super) fn complete(metadata: &DatabaseMetaData, pending: &str, before: &str, after: &str) -> (usize, Vec<String>) {
    if pending.trim().is_empty() && before.trim_start().starts_with('\\') {
        return command(metadata, before);
    }
    let typed = format!("{pending}{before}");
    let (statement, open) = match split(&typed).pop() {
        Some(piece) if piece.open != Open::Nothing => {
            (format!("{}{}", piece.text, &typed[typed.trim_end().len()..]), piece.open)
        }
        _ => (String::new(), Open::Statement),
    };
    let start = before.len() - last_word(before).len();
    if !matches!(open, Open::Statement | Open::Parenthesis) {
        return (start, Vec::new());
    }
    let word = &before[start..];
    let head = statement.strip_suffix(word).unwrap_or(&statement);
    let scope = Scope::of(metadata, &format!("{statement} {}", after.split(';').next().unwrap_or_default()));
    (start, candidates(metadata, &scope, head, word))
}

/// The word at the end of the text; it may be empty.
fn last_word(text: &str) -> &str {
    let start = text.char_indices().rev().take_while(|(_, c)| is_word(*c)).last();
    start.map_or("", |(at, _)| &text[at..])
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn candidates(metadata: &DatabaseMetaData, scope: &Scope<'_>, head: &str, word: &str) -> Vec<String> {
    if let Some(head) = head.strip_suffix('.') {
        let columns = scope.columns_of(last_word(head));
        return matching(word, columns.into_iter().map(Name::Sql));
    }
    let last = last_word(head.trim_end());
    let before_last = last_word(head.trim_end().strip_suffix(last).unwrap_or_default().trim_end());
    let settings = metadata.settings().iter().map(|setting| Name::Sql(setting.name));
    let relations = metadata.relations().iter().map(|relation| Name::Sql(&relation.name));
    let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
    // A word is a place's name only when a blank stands behind it.
    let last = if head.ends_with(char::is_whitespace) { last } else { "" };
    let updates = head.trim_start().get(..6).is_some_and(|start| is(start, "UPDATE"));
    if is(last, "SET") && updates {
        matching(word, scope.columns(metadata).into_iter().map(Name::Sql))
    } else if is(last, "CREATE") {
        matching(word, CREATED.map(Name::Keyword).into_iter())
    } else if is(last, "SET") || is(last, "RESET") {
        matching(word, settings)
    } else if is(last, "SHOW") {
        matching(
            word,
            settings.chain(
                ["QUERIES", "SETTINGS", "SINKS", "STREAMS", "TABLES", "TASKS", "VIEWS", "WORKERS"].map(Name::Keyword),
            ),
        )
    } else if ["FROM", "JOIN", "DESCRIBE", "INTO", "UPDATE"].iter().any(|known| is(last, known))
        || is(head.trim(), "DESC")
        || is(before_last, "DROP")
    {
        matching(word, relations)
    } else {
        let keywords = metadata.keywords().iter().copied().map(Name::Keyword);
        let columns = scope.columns(metadata).into_iter().map(Name::Sql);
        // Without a letter, hundreds of functions would hide the rest.
        let functions = metadata.functions().iter().filter(|_| !word.is_empty()).map(|name| Name::Function(name));
        matching(word, keywords.chain(columns).chain(relations).chain(functions))
    }
}

/// What comes after CREATE.
const CREATED: [&str; 7] = ["MATERIALIZED", "OR", "SINK", "SOURCE", "STREAM", "TABLE", "VIEW"];

/// A name, and how it is written.
#[derive(Clone, Copy)]
enum Name<'a> {
    /// In the case of what was typed.
    Keyword(&'a str),
    /// The same.
    Function(&'a str),
    /// As it is, in quotes if it needs them.
    Sql(&'a str),
}

fn matching<'a>(word: &str, names: impl Iterator<Item = Name<'a>>) -> Vec<String> {
    let starts = |name: &str| name.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let lower = word.contains(char::is_lowercase);
    let mut found = BTreeSet::new();
    for name in names {
        match name {
            Name::Keyword(name) | Name::Function(name) if !starts(name) => {}
            Name::Keyword(name) if lower => drop(found.insert(name.to_lowercase())),
            Name::Keyword(name) => drop(found.insert(name.to_uppercase())),
            Name::Function(name) if word.contains(char::is_uppercase) && !lower => {
                found.insert(name.to_uppercase());
            }
            Name::Function(name) => drop(found.insert(name.to_owned())),
            Name::Sql(name) if !starts(name) => {}
            Name::Sql(name) => drop(found.insert(quoted(name))),
        }
    }
    found.into_iter().collect()
}

fn quoted(name: &str) -> String {
    let plain =
        !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(|c| is_word(c) && !c.is_uppercase());
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The relations that a statement names, with their aliases.
struct Scope<'a> {
    named: Vec<(String, &'a RelationInfo)>,
}

impl<'a> Scope<'a> {
    fn of(metadata: &'a DatabaseMetaData, statement: &str) -> Self {
        let words: Vec<&str> = statement.split(|c: char| !is_word(c) && c != '"').filter(|w| !w.is_empty()).collect();
        let mut named = Vec::new();
        for (at, word) in words.iter().enumerate() {
            let name = word.trim_matches('"');
            let folded = if word.starts_with('"') { name.to_owned() } else { name.to_lowercase() };
            let Some(relation) = metadata.relations().iter().find(|relation| relation.name == folded) else {
                continue;
            };
            named.push((folded, relation));
            let mut next = words[at + 1..].iter().skip_while(|word| word.eq_ignore_ascii_case("AS"));
            if let Some(alias) = next.next()
                && !metadata.keywords().iter().any(|keyword| keyword.eq_ignore_ascii_case(alias))
            {
                named.push((alias.trim_matches('"').to_lowercase(), relation));
            }
        }
        Self { named }
    }

    /// The columns of a relation, by its name or alias.
    fn columns_of(&self, name: &str) -> Vec<&'a str> {
        let name = name.to_lowercase();
        let relation = self.named.iter().find(|(known, _)| *known == name);
        relation.map_or_else(Vec::new, |(_, relation)| columns(relation).collect())
    }

    /// The columns in scope; of everything if nothing is named yet.
    fn columns(&self, metadata: &'a DatabaseMetaData) -> Vec<&'a str> {
        if self.named.is_empty() {
            metadata.relations().iter().flat_map(columns).collect()
        } else {
            self.named.iter().flat_map(|(_, relation)| columns(relation)).collect()
        }
    }
}

fn columns(relation: &RelationInfo) -> impl Iterator<Item = &str> {
    relation.columns.iter().map(|column| column.name.as_str())
}

/// Completes a backslash command, or what comes behind it.
fn command(metadata: &DatabaseMetaData, before: &str) -> (usize, Vec<String>) {
    let indent = before.len() - before.trim_start().len();
    let line = &before[indent..];
    let Some((name, rest)) = line.split_once(char::is_whitespace) else {
        let names = TABLE.iter().map(|meta| meta.name).filter(|name| name.starts_with(line));
        return (indent, names.map(str::to_owned).collect());
    };
    let word = rest.rsplit(char::is_whitespace).next().unwrap_or_default();
    let start = before.len() - word.len();
    let takes = TABLE.iter().find(|meta| meta.name == name).map_or(Takes::Nothing, |meta| meta.takes);
    match takes {
        Takes::Nothing => (start, Vec::new()),
        Takes::Words(places) => {
            let place = rest.split_whitespace().count() - usize::from(!word.is_empty());
            let words = places.get(place).copied().unwrap_or_default();
            (start, words.iter().filter(|known| known.starts_with(word)).map(|word| (*word).to_owned()).collect())
        }
        Takes::Relation => (start, matching(word, metadata.relations().iter().map(|known| Name::Sql(&known.name)))),
        Takes::File => {
            let path = rest.trim_start();
            (before.len() - path.len(), files(path))
        }
    }
}

/// Files and folders that start like `path`.
fn files(path: &str) -> Vec<String> {
    let (folder, start) = path.rsplit_once('/').map_or(("", path), |(folder, _)| path.split_at(folder.len() + 1));
    let listed = std::fs::read_dir(if folder.is_empty() { Path::new(".") } else { Path::new(folder) });
    let names = listed.into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let hidden = name.starts_with('.') && !start.starts_with('.');
        let end = if entry.path().is_dir() { "/" } else { "" };
        (name.starts_with(start) && !hidden).then(|| format!("{folder}{name}{end}"))
    });
    let sorted: BTreeSet<String> = names.collect();
    sorted.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use thetis::Driver;

    use super::*;

    fn metadata() -> DatabaseMetaData {
        let connection = Driver::open("thetis:").unwrap();
        let mut statement = connection.statement();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for sql in [
            "CREATE VIEW orders AS SELECT 1 AS id, 2 AS price",
            "CREATE VIEW offers AS SELECT 1 AS id, 'x' AS \"Name\", 3 AS place",
        ] {
            runtime.block_on(statement.execute(sql)).unwrap();
        }
        connection.metadata().unwrap()
    }

    fn found(pending: &str, before: &str, after: &str) -> Vec<String> {
        complete(&metadata(), pending, before, after).1
    }

    #[test]
    fn keywords_come_in_the_case_of_what_was_typed() {
        assert_eq!(found("", "sel", ""), ["select"]);
        assert_eq!(found("", "SEL", ""), ["SELECT"]);
        assert_eq!(found("", "SELECT 1; SEL", ""), ["SELECT"]);
        assert_eq!(complete(&metadata(), "", "SELECT 1; SEL", "").0, 10);
    }

    #[test]
    fn relations_come_after_from() {
        assert_eq!(found("", "SELECT * FROM o", ""), ["offers", "orders"]);
        assert_eq!(found("SELECT *\n", "FROM ", ""), ["offers", "orders"]);
        assert_eq!(found("", "DROP VIEW of", ""), ["offers"]);
        assert_eq!(found("", "SELECT 1 AS a ORDER BY a DESC o", "").first().map(String::as_str), Some("octet_length"));
    }

    #[test]
    fn columns_are_those_in_scope() {
        assert_eq!(found("", "SELECT pr", " FROM orders"), ["price"]);
        assert!(found("", "SELECT p", " FROM orders").contains(&"price".to_owned()));
        assert!(!found("", "SELECT p", " FROM orders").contains(&"place".to_owned()));
        assert!(found("", "SELECT p", "").contains(&"place".to_owned()));
        assert_eq!(found("", "SELECT * FROM orders AS r JOIN offers f ON r.", ""), ["id", "price"]);
        assert_eq!(found("SELECT * FROM orders\n", "JOIN offers f ON f.", ""), ["\"Name\"", "id", "place"]);
        assert!(found("", "SELECT x.", "").is_empty());
    }

    #[test]
    fn settings_functions_and_nothing_in_quotes() {
        assert_eq!(found("", "SET par", ""), ["parallelism"]);
        assert_eq!(found("", "UPDATE orders SET p", ""), ["price"]);
        assert_eq!(found("", "insert into o", ""), ["offers", "orders"]);
        assert_eq!(found("", "create t", ""), ["table"]);
        assert!(found("", "SHOW s", "").contains(&"streams".to_owned()));
        assert!(found("", "SELECT sqr", "").contains(&"sqrt".to_owned()));
        assert!(found("", "SELECT SQR", "").contains(&"SQRT".to_owned()));
        assert!(found("", "SELECT 'sel", "").is_empty());
        assert!(found("SELECT '\n", "sel", "").is_empty());
    }

    #[test]
    fn commands_and_what_they_take() {
        assert_eq!(found("", "\\t", ""), ["\\timing"]);
        assert_eq!(found("", "\\timing o", ""), ["on", "off"]);
        assert_eq!(found("", "\\pset format m", ""), ["markdown"]);
        assert_eq!(found("", "\\d or", ""), ["orders"]);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one.sql"), "").unwrap();
        std::fs::create_dir(folder.path().join("one.d")).unwrap();
        let path = folder.path().display();
        assert_eq!(found("", &format!("\\i {path}/on"), ""), [format!("{path}/one.d/"), format!("{path}/one.sql")]);
    }
}
