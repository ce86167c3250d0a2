//! What a database has: for tools that list, complete or describe.

use arrow::datatypes::DataType;
use thetis_cluster::front::protocol::Description;
use thetis_planner::{SettingRow, Settings, function_names, sql_name};

/// What there was when [`crate::Connection::metadata`] was called.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let connection = thetis::Driver::open("thetis:")?;
/// let mut statement = connection.statement();
/// statement.execute("CREATE VIEW pairs AS SELECT 1::BIGINT AS x, 'a' AS y").await?;
/// let metadata = connection.metadata()?;
/// assert_eq!(metadata.product_name(), "Thetis");
/// assert_eq!(metadata.relations()[0].name, "pairs");
/// let columns = metadata.columns("pairs").unwrap();
/// assert_eq!((columns[0].name.as_str(), columns[0].type_name.as_str()), ("x", "BIGINT"));
/// assert!(metadata.functions().iter().any(|name| name == "sqrt"));
/// assert!(metadata.keywords().contains(&"SELECT"));
/// assert!(metadata.settings().iter().any(|setting| setting.name == "parallelism"));
/// # Ok::<(), thetis::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct DatabaseMetaData {
    relations: Vec<RelationInfo>,
    functions: Vec<String>,
    settings: Vec<SettingRow>,
}

/// What a relation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelationKind {
    /// A stream.
    Stream,
    /// A stored table.
    Table,
    /// A view.
    View,
    /// A view whose result is kept.
    MaterializedView,
    /// A sink, which can only be written.
    Sink,
}

/// What a name in the catalogue means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationInfo {
    /// Its name, as the catalogue has it: in lower case unless it was quoted.
    pub name: String,
    /// What it is.
    pub kind: RelationKind,
    /// Its columns, in order.
    pub columns: Vec<ColumnInfo>,
}

/// A column of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: DataType,
    /// The SQL name of its type.
    pub type_name: String,
    /// Whether it can be NULL.
    pub nullable: bool,
}

impl RelationKind {
    /// As in `DROP name`, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Table => "table",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
        }
    }

    const ALL: [Self; 5] = [Self::Stream, Self::Table, Self::View, Self::MaterializedView, Self::Sink];

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl DatabaseMetaData {
    pub(crate) fn of(description: Description) -> Self {
        let relation = |(name, kind, schema): (String, String, arrow::datatypes::SchemaRef)| {
            let columns = schema.fields().iter().map(|field| ColumnInfo::of(field)).collect();
            Some(RelationInfo { name, kind: RelationKind::of(&kind)?, columns })
        };
        let relations = description.relations.into_iter().filter_map(relation).collect();
        let value = |name: &str| {
            let found = description.settings.iter().find(|(of, _)| of == name);
            found.map(|(_, value)| value.clone())
        };
        let settings = Settings::new(1).rows().into_iter();
        let settings = settings.filter_map(|row| Some(SettingRow { value: value(row.name)?, ..row })).collect();
        Self { relations, functions: function_names(), settings }
    }

    /// `Thetis`.
    pub fn product_name(&self) -> &'static str {
        "Thetis"
    }

    /// The version, as in `0.1.0`.
    pub fn product_version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    /// Streams, tables, views and sinks, by name.
    pub fn relations(&self) -> &[RelationInfo] {
        &self.relations
    }

    /// The columns of the relation of this name, as the catalogue has it; `None` if there is none.
    pub fn columns(&self, relation: &str) -> Option<&[ColumnInfo]> {
        self.relations.iter().find(|known| known.name == relation).map(|known| known.columns.as_slice())
    }

    /// The names of the functions that a query can call, in order.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// The words that statements are made of, in capitals and in order.
    pub fn keywords(&self) -> &'static [&'static str] {
        &KEYWORDS
    }

    /// The settings and their values, by name.
    pub fn settings(&self) -> &[SettingRow] {
        &self.settings
    }
}

impl ColumnInfo {
    fn of(field: &arrow::datatypes::Field) -> Self {
        Self {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            type_name: sql_name(field.data_type()),
            nullable: field.is_nullable(),
        }
    }
}

const KEYWORDS: [&str; 103] = [
    "ALL",
    "ANALYZE",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BIGINT",
    "BOOLEAN",
    "BY",
    "BYTEA",
    "CASE",
    "CAST",
    "CREATE",
    "CROSS",
    "DATE",
    "DECIMAL",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DOT",
    "DOUBLE",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FILTER",
    "FIRST",
    "FOR",
    "FORMAT",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IF",
    "ILIKE",
    "IN",
    "INNER",
    "INSERT",
    "INTEGER",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "JSON",
    "LAST",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MATERIALIZED",
    "NATURAL",
    "NOT",
    "NULL",
    "NULLS",
    "OF",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "REAL",
    "REPLACE",
    "RESET",
    "RIGHT",
    "SELECT",
    "SET",
    "SETTINGS",
    "SHOW",
    "SINK",
    "SINKS",
    "SMALLINT",
    "SOURCE",
    "STREAM",
    "STREAMS",
    "SUBSTRING",
    "TABLE",
    "TABLES",
    "TEXT",
    "THEN",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "TO",
    "TRUE",
    "UNION",
    "UNNEST",
    "UPDATE",
    "USING",
    "VALUES",
    "VARCHAR",
    "VERBOSE",
    "VIEW",
    "VIEWS",
    "WATERMARK",
    "WHEN",
    "WHERE",
    "WITH",
    "ZONE",
];

#[cfg(test)]
mod tests {
    use super::KEYWORDS;

    #[test]
    fn keywords_are_in_order() {
        assert!(KEYWORDS.is_sorted());
    }
}
