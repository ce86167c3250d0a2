//! The settings of a session: one table gives names, meanings, checks and defaults.

use std::num::NonZeroU64;
use std::time::Duration;

use thetis_parser::Position;

use crate::error::{PlanError, PlanErrorKind};
use crate::sizing::Shape;

/// Most tasks that an operator may have.
pub(crate) const MAX_PARALLELISM: u32 = 256;

/// Typed settings of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Tasks per operator.
    pub parallelism: u32,
    /// One `any` region of this shape for every join, instead of a chosen layout.
    pub matrix: Option<Shape>,
    /// Most bytes that one cell of a join may hold; the matrix gets as many cells as that needs.
    pub cell_memory: Option<NonZeroU64>,
    /// How often sources close an epoch.
    pub epoch_interval: Duration,
    /// Sources close an epoch after this many rows instead of by the clock.
    pub epoch_rows: Option<NonZeroU64>,
    /// Files are read by several tasks, in several processes.
    pub spread_sources: bool,
    default_parallelism: u32,
}

struct Setting {
    name: &'static str,
    meaning: &'static str,
    show: fn(&Settings) -> String,
    set: fn(&mut Settings, &str) -> Result<(), &'static str>,
    reset: fn(&mut Settings),
}

const TABLE: [Setting; 5] = [
    Setting {
        name: "cell_memory",
        meaning: "most bytes a cell of a join may hold ('64MB'), or 'off': the matrix grows to fit",
        show: |s| s.cell_memory.map_or_else(|| "off".to_owned(), |bytes| format!("{bytes}B")),
        set: |s, text| {
            s.cell_memory = if is_off(text) { None } else { Some(bytes(text)?) };
            Ok(())
        },
        reset: |s| s.cell_memory = None,
    },
    Setting {
        name: "epoch_interval",
        meaning: "how often sources close an epoch, as in '100ms' or '1s'",
        show: |s| show_duration(s.epoch_interval),
        set: |s, text| {
            s.epoch_interval = duration(text)?;
            Ok(())
        },
        reset: |s| s.epoch_interval = DEFAULT_EPOCH_INTERVAL,
    },
    Setting {
        name: "epoch_rows",
        meaning: "sources close an epoch after this many rows instead of by the clock; 'off' by default",
        show: |s| s.epoch_rows.map_or_else(|| "off".to_owned(), |rows| rows.to_string()),
        set: |s, text| {
            s.epoch_rows = if is_off(text) {
                None
            } else {
                Some(text.parse().map_err(|_| "a whole number of rows from 1, or 'off'")?)
            };
            Ok(())
        },
        reset: |s| s.epoch_rows = None,
    },
    Setting {
        name: "matrix",
        meaning: "shape of every join's matrix, as in '2x3', or 'auto': by the sizes of its inputs",
        show: |s| s.matrix.map_or_else(|| "auto".to_owned(), |m| format!("{}x{}", m.rows, m.columns)),
        set: |s, text| {
            s.matrix = if text.eq_ignore_ascii_case("auto") { None } else { Some(shape(text)?) };
            Ok(())
        },
        reset: |s| s.matrix = None,
    },
    Setting {
        name: "parallelism",
        meaning: "tasks per operator, by default the number of cores; with 1 a query keeps to one core",
        show: |s| s.parallelism.to_string(),
        set: |s, text| {
            s.parallelism = text
                .parse()
                .ok()
                .filter(|n| (1..=MAX_PARALLELISM).contains(n))
                .ok_or("a whole number from 1 to 256")?;
            Ok(())
        },
        reset: |s| s.parallelism = s.default_parallelism,
    },
];

const DEFAULT_EPOCH_INTERVAL: Duration = Duration::from_millis(100);

/// A setting as `SHOW SETTINGS` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// Name.
    pub name: &'static str,
    /// Value now.
    pub value: String,
    /// What it does.
    pub meaning: &'static str,
}

impl Settings {
    /// The defaults on a machine with `cores` cores.
    pub fn new(cores: usize) -> Self {
        let parallelism = u32::try_from(cores).unwrap_or(MAX_PARALLELISM).clamp(1, MAX_PARALLELISM);
        Self {
            parallelism,
            matrix: None,
            cell_memory: None,
            epoch_interval: DEFAULT_EPOCH_INTERVAL,
            epoch_rows: None,
            spread_sources: false,
            default_parallelism: parallelism,
        }
    }

    /// Sets `name` to `value`, or back to its default when `value` is `None`.
    ///
    /// # Errors
    /// An unknown name (with a suggestion) or a value that the setting does not take.
    pub fn set(&mut self, name: &str, value: Option<&str>, position: Option<Position>) -> Result<(), PlanError> {
        let setting = find(name)?;
        let Some(value) = value else {
            (setting.reset)(self);
            return Ok(());
        };
        (setting.set)(self, value.trim()).map_err(|takes| {
            PlanError::new(PlanErrorKind::Setting, format!("'{value}' is not a value for {}", setting.name))
                .hint(format!("{} takes {takes}", setting.name))
                .at(position)
        })
    }

    /// One setting.
    ///
    /// # Errors
    /// An unknown name, with a suggestion.
    pub fn show(&self, name: &str) -> Result<SettingRow, PlanError> {
        Ok(self.row(find(name)?))
    }

    /// All settings, by name.
    pub fn rows(&self) -> Vec<SettingRow> {
        TABLE.iter().map(|setting| self.row(setting)).collect()
    }

    fn row(&self, setting: &Setting) -> SettingRow {
        SettingRow { name: setting.name, value: (setting.show)(self), meaning: setting.meaning }
    }
}

fn find(name: &str) -> Result<&'static Setting, PlanError> {
    TABLE.iter().find(|setting| setting.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let error = PlanError::new(PlanErrorKind::Setting, format!("there is no setting '{name}'"))
            .hint("SHOW SETTINGS lists them");
        error.suggest(name, TABLE.iter().map(|setting| setting.name))
    })
}

fn is_off(text: &str) -> bool {
    text.eq_ignore_ascii_case("off")
}

fn shape(text: &str) -> Result<Shape, &'static str> {
    const TAKES: &str = "rows x columns, as in '2x3' (at most 256 cells), or 'auto'";
    let (rows, columns) = text.split_once(['x', 'X']).ok_or(TAKES)?;
    let part = |text: &str| text.trim().parse::<u32>().ok().filter(|n| (1..=MAX_PARALLELISM).contains(n));
    let shape = Shape { rows: part(rows).ok_or(TAKES)?, columns: part(columns).ok_or(TAKES)? };
    if shape.cells() > MAX_PARALLELISM { Err(TAKES) } else { Ok(shape) }
}

fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..digits], text[digits..].trim())
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    const TAKES: &str = "a duration from '1ms' to '1h' with its unit: ms, s, min or h";
    let duration = parse_duration(text).map_err(|_| TAKES)?;
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    if range.contains(&duration) { Ok(duration) } else { Err(TAKES) }
}

/// A number with a unit of time, as in `100ms`, `1.5s`, `2min` or `1h`.
///
/// # Errors
/// What a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    const TAKES: &str = "a duration with its unit (ms, s, min or h), as in '10s'";
    let (number, unit) = split_unit(text.trim());
    let number: f64 = number.parse().map_err(|_| TAKES)?;
    let seconds = match unit.to_ascii_lowercase().as_str() {
        "ms" | "millisecond" | "milliseconds" => number / 1e3,
        "s" | "sec" | "second" | "seconds" => number,
        "min" | "minute" | "minutes" => number * 60.0,
        "h" | "hour" | "hours" => number * 3600.0,
        _ => return Err(TAKES),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| TAKES)
}

fn show_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_secs_f64() * 1e3)
    }
}

fn bytes(text: &str) -> Result<NonZeroU64, &'static str> {
    const TAKES: &str = "a number of bytes with a unit (B, kB, MB, GB), or 'off'";
    let (number, unit) = split_unit(text);
    let number: f64 = number.parse().map_err(|_| TAKES)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "k" => 1e3,
        "mb" | "m" => 1e6,
        "gb" | "g" => 1e9,
        _ => return Err(TAKES),
    };
    NonZeroU64::new((number * scale) as u64).ok_or(TAKES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_typed_and_come_back_as_text() {
        let mut settings = Settings::new(2);
        for (name, value, shown) in [
            ("matrix", "2x3", "2x3"),
            ("MATRIX", "auto", "auto"),
            ("epoch_interval", "1.5s", "1500ms"),
            ("epoch_rows", "100", "100"),
            ("epoch_rows", "off", "off"),
            ("parallelism", "6", "6"),
            ("cell_memory", "64MB", "64000000B"),
        ] {
            settings.set(name, Some(value), None).unwrap();
            assert_eq!(settings.show(name).unwrap().value, shown);
        }
        settings.set("parallelism", None, None).unwrap();
        assert_eq!(settings.parallelism, 2);
    }

    #[test]
    fn wrong_names_and_values_are_errors_with_advice() {
        let mut settings = Settings::new(2);
        let error = settings.set("paralellism", Some("1"), None).unwrap_err();
        assert_eq!(error.hint.as_deref(), Some("did you mean parallelism?"));
        for (name, value) in [
            ("parallelism", "0"),
            ("parallelism", "many"),
            ("matrix", "0x2"),
            ("matrix", "100x100"),
            ("epoch_rows", "-1"),
            ("epoch_interval", "100"),
            ("epoch_interval", "5y"),
            ("cell_memory", "lots"),
        ] {
            assert!(settings.set(name, Some(value), None).unwrap_err().hint.is_some(), "{name} {value}");
        }
    }
}
