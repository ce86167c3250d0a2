//! Expressions as plain data: what a plan carries, and what a worker plans again to the same
//! physical expression. Columns are positions in the input; types and coercions are already in
//! the tree, so nothing is resolved a second time.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use datafusion_common::{Column, DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::expr::{Alias, InList, Like, ScalarFunction};
use datafusion_expr::{Between, BinaryExpr, Case, Cast, Expr, Operator, TryCast};
use serde::{Deserialize, Serialize};

use crate::error::PlanError;
use crate::functions;

/// A scalar expression over the columns of one input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ScalarExpr {
    /// The input's column at this position.
    Column(u32),
    /// A constant.
    Literal(Literal),
    /// `left op right`.
    Binary {
        /// The operator as SQL writes it.
        op: String,
        /// Left operand.
        left: Box<Self>,
        /// Right operand.
        right: Box<Self>,
    },
    /// `NOT e`, `-e`, `e IS NULL` and the like.
    Unary(Unary, Box<Self>),
    /// `CASE [operand] WHEN ... THEN ... ELSE ... END`.
    Case {
        /// The operand that every WHEN is compared with.
        operand: Option<Box<Self>>,
        /// Conditions and results.
        branches: Vec<(Self, Self)>,
        /// The result when no condition holds.
        otherwise: Option<Box<Self>>,
    },
    /// `CAST(e AS type)`; `safe` gives NULL instead of an error.
    Cast {
        /// What is cast.
        expr: Box<Self>,
        /// The type it gets.
        to: DataType,
        /// `TRY_CAST`.
        safe: bool,
    },
    /// `e [NOT] LIKE pattern`, `ILIKE`, `SIMILAR TO`.
    Like {
        /// Which of them.
        kind: LikeKind,
        /// `NOT`.
        negated: bool,
        /// What is matched.
        expr: Box<Self>,
        /// The pattern.
        pattern: Box<Self>,
        /// `ESCAPE`.
        escape: Option<char>,
    },
    /// `e [NOT] IN (list)`.
    InList {
        /// What is looked for.
        expr: Box<Self>,
        /// Where.
        list: Vec<Self>,
        /// `NOT`.
        negated: bool,
    },
    /// A function of the library, by name.
    Function {
        /// Its name.
        name: String,
        /// Its arguments.
        args: Vec<Self>,
    },
}

/// Functions that read the clock.
const CLOCK_FUNCTIONS: [&str; 3] = ["now", "current_date", "current_time"];

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unary {
    /// `NOT e`
    Not,
    /// `-e`
    Negative,
    /// `e IS NULL`
    IsNull,
    /// `e IS NOT NULL`
    IsNotNull,
    /// `e IS TRUE`
    IsTrue,
    /// `e IS FALSE`
    IsFalse,
    /// `e IS UNKNOWN`
    IsUnknown,
    /// `e IS NOT TRUE`
    IsNotTrue,
    /// `e IS NOT FALSE`
    IsNotFalse,
    /// `e IS NOT UNKNOWN`
    IsNotUnknown,
}

/// The pattern matchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LikeKind {
    /// `LIKE`
    Like,
    /// `ILIKE`
    Ilike,
    /// `SIMILAR TO`
    Similar,
}

/// A constant of any type: an Arrow IPC stream with one row of one column, and its text for
/// people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Literal {
    ipc: Vec<u8>,
    text: String,
}

impl Literal {
    fn new(value: &ScalarValue) -> Result<Self, DataFusionError> {
        let array = value.to_array()?;
        let field = Field::new("", array.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = arrow::array::RecordBatch::try_new(Arc::clone(&schema), vec![array])?;
        let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
        writer.write(&batch)?;
        Ok(Self { ipc: writer.into_inner()?, text: literal_text(value) })
    }

    fn value(&self) -> Result<ScalarValue, DataFusionError> {
        let mut reader = StreamReader::try_new(self.ipc.as_slice(), None)?;
        let batch = reader.next().transpose()?.filter(|batch| batch.num_rows() == 1);
        let batch = batch.ok_or_else(|| DataFusionError::Internal("a literal without a value".to_owned()))?;
        ScalarValue::try_from_array(batch.column(0), 0)
    }
}

fn literal_text(value: &ScalarValue) -> String {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        value if value.is_null() => "NULL".to_owned(),
        value if matches!(value.data_type(), DataType::Interval(_)) => {
            format!("INTERVAL '{}'", value.to_string().to_lowercase())
        }
        value if value.data_type().is_temporal() => format!("'{}'", display_array(value)),
        value => value.to_string(),
    }
}

/// Temporal values read as dates and times, not as counts of units.
fn display_array(value: &ScalarValue) -> String {
    value
        .to_array()
        .ok()
        .and_then(|array| arrow::util::display::array_value_to_string(&array, 0).ok())
        .unwrap_or_else(|| value.to_string())
}

impl ScalarExpr {
    /// The plain form of `expr` over the columns of `schema`.
    ///
    /// # Errors
    /// Expressions that are not scalar (subqueries, window functions, parameters, lambdas).
    pub fn of(expr: &Expr, schema: &DFSchema) -> Result<Self, PlanError> {
        let one = |expr: &Expr| Self::of(expr, schema);
        let boxed = |expr: &Expr| Self::of(expr, schema).map(Box::new);
        let many = |exprs: &[Expr]| exprs.iter().map(one).collect::<Result<Vec<_>, _>>();
        Ok(match expr {
            Expr::Alias(Alias { expr, .. }) => one(expr)?,
            Expr::Column(column) => Self::Column(schema.index_of_column(column)? as u32),
            Expr::Literal(value, _) => Self::Literal(Literal::new(value)?),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                Self::Binary { op: op.to_string(), left: boxed(left)?, right: boxed(right)? }
            }
            Expr::Not(e) => Self::Unary(Unary::Not, boxed(e)?),
            Expr::Negative(e) => Self::Unary(Unary::Negative, boxed(e)?),
            Expr::IsNull(e) => Self::Unary(Unary::IsNull, boxed(e)?),
            Expr::IsNotNull(e) => Self::Unary(Unary::IsNotNull, boxed(e)?),
            Expr::IsTrue(e) => Self::Unary(Unary::IsTrue, boxed(e)?),
            Expr::IsFalse(e) => Self::Unary(Unary::IsFalse, boxed(e)?),
            Expr::IsUnknown(e) => Self::Unary(Unary::IsUnknown, boxed(e)?),
            Expr::IsNotTrue(e) => Self::Unary(Unary::IsNotTrue, boxed(e)?),
            Expr::IsNotFalse(e) => Self::Unary(Unary::IsNotFalse, boxed(e)?),
            Expr::IsNotUnknown(e) => Self::Unary(Unary::IsNotUnknown, boxed(e)?),
            Expr::Between(Between { expr, negated, low, high }) => {
                let (expr, low, high) = (boxed(expr)?, boxed(low)?, boxed(high)?);
                let (from, to, both) = if *negated { ("<", ">", "OR") } else { (">=", "<=", "AND") };
                let low = Self::binary(from, expr.clone(), low);
                let high = Self::binary(to, expr, high);
                *Self::binary(both, low, high)
            }
            Expr::Case(Case { expr, when_then_expr, else_expr }) => Self::Case {
                operand: expr.as_deref().map(boxed).transpose()?,
                branches: when_then_expr
                    .iter()
                    .map(|(when, then)| Ok((one(when)?, one(then)?)))
                    .collect::<Result<_, PlanError>>()?,
                otherwise: else_expr.as_deref().map(boxed).transpose()?,
            },
            Expr::Cast(Cast { expr, field }) => {
                Self::Cast { expr: boxed(expr)?, to: field.data_type().clone(), safe: false }
            }
            Expr::TryCast(TryCast { expr, field }) => {
                Self::Cast { expr: boxed(expr)?, to: field.data_type().clone(), safe: true }
            }
            Expr::Like(like) => {
                let kind = if like.case_insensitive { LikeKind::Ilike } else { LikeKind::Like };
                Self::like(kind, like, boxed(&like.expr)?, boxed(&like.pattern)?)
            }
            Expr::SimilarTo(like) => Self::like(LikeKind::Similar, like, boxed(&like.expr)?, boxed(&like.pattern)?),
            Expr::InList(InList { expr, list, negated }) => {
                Self::InList { expr: boxed(expr)?, list: many(list)?, negated: *negated }
            }
            Expr::ScalarFunction(ScalarFunction { func, .. }) if CLOCK_FUNCTIONS.contains(&func.name()) => {
                return Err(PlanError::unsupported(
                    format!("{}() is not supported: a continuous result would change with every moment", func.name()),
                    "write the time as a constant, or use submit's -v name=value and :'name'",
                ));
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) => {
                Self::Function { name: func.name().to_owned(), args: many(args)? }
            }
            other => return Err(not_scalar(other)),
        })
    }

    fn binary(op: &str, left: Box<Self>, right: Box<Self>) -> Box<Self> {
        Box::new(Self::Binary { op: op.to_owned(), left, right })
    }

    fn like(kind: LikeKind, like: &Like, expr: Box<Self>, pattern: Box<Self>) -> Self {
        Self::Like { kind, negated: like.negated, expr, pattern, escape: like.escape_char }
    }

    /// The DataFusion expression over columns named by [`column_name`].
    ///
    /// # Errors
    /// A plan that names an operator or a function that this build does not have.
    pub fn to_datafusion(&self) -> Result<Expr, DataFusionError> {
        let boxed = |expr: &Self| expr.to_datafusion().map(Box::new);
        let many = |exprs: &[Self]| exprs.iter().map(Self::to_datafusion).collect::<Result<Vec<_>, _>>();
        Ok(match self {
            Self::Column(index) => Expr::Column(Column::new_unqualified(column_name(*index))),
            Self::Literal(literal) => Expr::Literal(literal.value()?, None),
            Self::Binary { op, left, right } => {
                Expr::BinaryExpr(BinaryExpr::new(boxed(left)?, operator(op)?, boxed(right)?))
            }
            Self::Unary(unary, e) => {
                let e = boxed(e)?;
                match unary {
                    Unary::Not => Expr::Not(e),
                    Unary::Negative => Expr::Negative(e),
                    Unary::IsNull => Expr::IsNull(e),
                    Unary::IsNotNull => Expr::IsNotNull(e),
                    Unary::IsTrue => Expr::IsTrue(e),
                    Unary::IsFalse => Expr::IsFalse(e),
                    Unary::IsUnknown => Expr::IsUnknown(e),
                    Unary::IsNotTrue => Expr::IsNotTrue(e),
                    Unary::IsNotFalse => Expr::IsNotFalse(e),
                    Unary::IsNotUnknown => Expr::IsNotUnknown(e),
                }
            }
            Self::Case { operand, branches, otherwise } => Expr::Case(Case {
                expr: operand.as_deref().map(boxed).transpose()?,
                when_then_expr: branches.iter().map(|(when, then)| Ok((boxed(when)?, boxed(then)?))).collect::<Result<
                    _,
                    DataFusionError,
                >>(
                )?,
                else_expr: otherwise.as_deref().map(boxed).transpose()?,
            }),
            Self::Cast { expr, to, safe: false } => Expr::Cast(Cast::new(boxed(expr)?, to.clone())),
            Self::Cast { expr, to, safe: true } => Expr::TryCast(TryCast::new(boxed(expr)?, to.clone())),
            Self::Like { kind, negated, expr, pattern, escape } => {
                let ilike = *kind == LikeKind::Ilike;
                let like = Like::new(*negated, boxed(expr)?, boxed(pattern)?, *escape, ilike);
                if *kind == LikeKind::Similar { Expr::SimilarTo(like) } else { Expr::Like(like) }
            }
            Self::InList { expr, list, negated } => {
                Expr::InList(InList { expr: boxed(expr)?, list: many(list)?, negated: *negated })
            }
            Self::Function { name, args } => {
                let func = functions::scalar(name)
                    .ok_or_else(|| DataFusionError::Plan(format!("this build has no function {name}")))?;
                Expr::ScalarFunction(ScalarFunction { func, args: many(args)? })
            }
        })
    }

    /// Calls `visit` with every column position.
    pub fn for_each_column(&self, visit: &mut impl FnMut(u32)) {
        match self {
            Self::Column(index) => visit(*index),
            Self::Literal(_) => {}
            Self::Binary { left, right, .. } => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
            Self::Unary(_, e) | Self::Cast { expr: e, .. } => e.for_each_column(visit),
            Self::Case { operand, branches, otherwise } => {
                operand.iter().chain(otherwise).for_each(|e| e.for_each_column(visit));
                for (when, then) in branches {
                    when.for_each_column(visit);
                    then.for_each_column(visit);
                }
            }
            Self::Like { expr, pattern, .. } => {
                expr.for_each_column(visit);
                pattern.for_each_column(visit);
            }
            Self::InList { expr, list, .. } => {
                expr.for_each_column(visit);
                list.iter().for_each(|e| e.for_each_column(visit));
            }
            Self::Function { args, .. } => args.iter().for_each(|e| e.for_each_column(visit)),
        }
    }

    /// The same expression over other column positions.
    #[must_use]
    pub fn map_columns(&self, map: &impl Fn(u32) -> u32) -> Self {
        self.replace_columns(&|column| Self::Column(map(column)))
    }

    /// The same expression over these expressions in place of the columns.
    #[must_use]
    pub(crate) fn with_columns(&self, columns: &[Self]) -> Self {
        self.replace_columns(&|column| columns[column as usize].clone())
    }

    fn replace_columns(&self, map: &impl Fn(u32) -> Self) -> Self {
        let boxed = |e: &Self| Box::new(e.replace_columns(map));
        let many = |exprs: &[Self]| exprs.iter().map(|e| e.replace_columns(map)).collect();
        match self {
            Self::Column(index) => map(*index),
            Self::Literal(literal) => Self::Literal(literal.clone()),
            Self::Binary { op, left, right } => Self::Binary { op: op.clone(), left: boxed(left), right: boxed(right) },
            Self::Unary(unary, e) => Self::Unary(*unary, boxed(e)),
            Self::Case { operand, branches, otherwise } => Self::Case {
                operand: operand.as_deref().map(boxed),
                branches: branches
                    .iter()
                    .map(|(when, then)| (when.replace_columns(map), then.replace_columns(map)))
                    .collect(),
                otherwise: otherwise.as_deref().map(boxed),
            },
            Self::Cast { expr, to, safe } => Self::Cast { expr: boxed(expr), to: to.clone(), safe: *safe },
            Self::Like { kind, negated, expr, pattern, escape } => Self::Like {
                kind: *kind,
                negated: *negated,
                expr: boxed(expr),
                pattern: boxed(pattern),
                escape: *escape,
            },
            Self::InList { expr, list, negated } => {
                Self::InList { expr: boxed(expr), list: many(list), negated: *negated }
            }
            Self::Function { name, args } => Self::Function { name: name.clone(), args: many(args) },
        }
    }

    /// SQL-like text with the names of `columns`.
    pub fn display(&self, columns: &[String]) -> String {
        let many = |exprs: &[Self]| exprs.iter().map(|e| e.display(columns)).collect::<Vec<_>>().join(", ");
        match self {
            Self::Column(index) => columns.get(*index as usize).cloned().unwrap_or_else(|| column_name(*index)),
            Self::Literal(literal) => literal.text.clone(),
            Self::Binary { op, left, right } => {
                let side = |e: &Self| match e {
                    Self::Binary { op: inner, .. }
                        if !(inner == op && matches!(op.as_str(), "AND" | "OR" | "+" | "*")) =>
                    {
                        format!("({})", e.display(columns))
                    }
                    _ => e.display(columns),
                };
                format!("{} {op} {}", side(left), side(right))
            }
            Self::Unary(unary, e) => {
                let e = e.display(columns);
                match unary {
                    Unary::Not => format!("NOT ({e})"),
                    Unary::Negative => format!("-({e})"),
                    Unary::IsNull => format!("{e} IS NULL"),
                    Unary::IsNotNull => format!("{e} IS NOT NULL"),
                    Unary::IsTrue => format!("{e} IS TRUE"),
                    Unary::IsFalse => format!("{e} IS FALSE"),
                    Unary::IsUnknown => format!("{e} IS UNKNOWN"),
                    Unary::IsNotTrue => format!("{e} IS NOT TRUE"),
                    Unary::IsNotFalse => format!("{e} IS NOT FALSE"),
                    Unary::IsNotUnknown => format!("{e} IS NOT UNKNOWN"),
                }
            }
            Self::Case { operand, branches, otherwise } => {
                let mut text = "CASE".to_owned();
                if let Some(operand) = operand {
                    text += &format!(" {}", operand.display(columns));
                }
                for (when, then) in branches {
                    text += &format!(" WHEN {} THEN {}", when.display(columns), then.display(columns));
                }
                if let Some(otherwise) = otherwise {
                    text += &format!(" ELSE {}", otherwise.display(columns));
                }
                text + " END"
            }
            Self::Cast { expr, to, safe } => {
                let name = if *safe { "TRY_CAST" } else { "CAST" };
                format!("{name}({} AS {})", expr.display(columns), crate::types::sql_name(to))
            }
            Self::Like { kind, negated, expr, pattern, .. } => {
                let not = if *negated { "NOT " } else { "" };
                let op = match kind {
                    LikeKind::Like => "LIKE",
                    LikeKind::Ilike => "ILIKE",
                    LikeKind::Similar => "SIMILAR TO",
                };
                format!("{} {not}{op} {}", expr.display(columns), pattern.display(columns))
            }
            Self::InList { expr, list, negated } => {
                let not = if *negated { "NOT " } else { "" };
                format!("{} {not}IN ({})", expr.display(columns), many(list))
            }
            Self::Function { name, args } => format!("{name}({})", many(args)),
        }
    }
}

/// Name of the column at `index` in the schemas that [`plain_schema`] makes.
pub fn column_name(index: u32) -> String {
    format!("#{index}")
}

/// `schema` with every column nullable and named by its position: what
/// [`ScalarExpr::to_datafusion`] resolves against, free of duplicate names.
pub fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().zip(0..);
    Arc::new(Schema::new(
        fields
            .map(|(field, index)| Field::new(column_name(index), field.data_type().clone(), true))
            .collect::<Vec<_>>(),
    ))
}

fn operator(op: &str) -> Result<Operator, DataFusionError> {
    use Operator as O;
    const OPERATORS: [Operator; 30] = [
        O::Eq,
        O::NotEq,
        O::Lt,
        O::LtEq,
        O::Gt,
        O::GtEq,
        O::Plus,
        O::Minus,
        O::Multiply,
        O::Divide,
        O::Modulo,
        O::And,
        O::Or,
        O::IsDistinctFrom,
        O::IsNotDistinctFrom,
        O::RegexMatch,
        O::RegexIMatch,
        O::RegexNotMatch,
        O::RegexNotIMatch,
        O::LikeMatch,
        O::ILikeMatch,
        O::NotLikeMatch,
        O::NotILikeMatch,
        O::BitwiseAnd,
        O::BitwiseOr,
        O::BitwiseXor,
        O::BitwiseShiftRight,
        O::BitwiseShiftLeft,
        O::StringConcat,
        O::IntegerDivide,
    ];
    OPERATORS
        .into_iter()
        .find(|operator| operator.to_string() == op)
        .ok_or_else(|| DataFusionError::Plan(format!("this build has no operator {op}")))
}

fn not_scalar(expr: &Expr) -> PlanError {
    let (what, hint) = match expr {
        Expr::ScalarSubquery(_) => ("a scalar subquery in this place", "move it into a subquery in FROM and join it"),
        Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => (
            "IN, EXISTS, ANY and ALL with a subquery in this place",
            "use IN and EXISTS in WHERE, correlated by equalities of columns, or join with SELECT DISTINCT of the subquery",
        ),
        Expr::WindowFunction(_) => ("a window function (OVER)", "join with an aggregate in a subquery instead"),
        Expr::Placeholder(_) => ("a parameter", "write the value, or use submit's -v name=value and :name"),
        Expr::AggregateFunction(_) => {
            ("an aggregate function in this place", "aggregate in a subquery in FROM and use its result")
        }
        _ => ("an expression of this kind", "see the functions and operators in the README"),
    };
    PlanError::unsupported(format!("{what} is not supported: {expr}"), hint)
}
