//! A staged statement as diesel runs it: cached by its text, and its parameters in their places.

use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Untyped};
use diesel::{QueryResult, RunQueryDsl};
use postrider_postgres::{Staged, Value};

/// `sql_query` would do, but its statements are prepared anew each time, which is a second round trip.
#[derive(Debug)]
pub(crate) struct Statement<'e> {
    staged: Staged<'e>,
}

impl<'e> From<Staged<'e>> for Statement<'e> {
    fn from(staged: Staged<'e>) -> Statement<'e> {
        Statement { staged }
    }
}

impl QueryId for Statement<'_> {
    type QueryId = ();

    // The text is the key of the cache. There are four of them.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Statement<'_> {
    type SqlType = Untyped;
}

impl<C> RunQueryDsl<C> for Statement<'_> {}

impl QueryFragment<Pg> for Statement<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut pieces = self.staged.statement.split('$');
        out.push_sql(pieces.next().unwrap_or_default());
        for piece in pieces {
            let digits = piece.bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = piece[..digits].parse().unwrap_or_default();
            let value = number.checked_sub(1).and_then(|index| self.staged.values.get(index));
            match value {
                Some(value) => push(&mut out, value)?,
                None => {
                    return Err(diesel::result::Error::QueryBuilderError(
                        "a parameter without a value".into(),
                    ));
                }
            }
            out.push_sql(&piece[digits..]);
        }
        Ok(())
    }
}

fn push<'b>(out: &mut AstPass<'_, 'b, Pg>, value: &'b Value<'_>) -> QueryResult<()> {
    match value {
        Value::Text(value) => out.push_bind_param::<Nullable<Text>, _>(value),
        Value::Integer(value) => out.push_bind_param::<Integer, _>(value),
        Value::BigInt(value) => out.push_bind_param::<BigInt, _>(value),
        Value::Bytes(value) => out.push_bind_param::<Nullable<Binary>, _>(value),
        Value::Texts(values) => out.push_bind_param::<Array<Nullable<Text>>, _>(values),
        Value::Integers(values) => out.push_bind_param::<Array<Integer>, _>(values),
        Value::BigInts(values) => out.push_bind_param::<Array<Nullable<BigInt>>, _>(values),
        Value::ByteStrings(values) => out.push_bind_param::<Array<Nullable<Binary>>, _>(values),
    }
}
