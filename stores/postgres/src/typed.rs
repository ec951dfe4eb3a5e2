//! Values of statements, each with its type.
//!
//! A prepared statement would tell the types; behind a pooler that hands every transaction to another
//! session there is none. With the types beside the values both ways are the same call.

use bytes::BytesMut;
use postrider_core::{EventId, Timestamp};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use uuid::Uuid;

/// A value and its type.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What a value is on the wire.
pub(crate) trait Typed {
    const TYPE: Type;
}

/// What can stand in an array.
pub(crate) trait Element: Typed {
    const ARRAY: Type;
}

macro_rules! typed {
    ($($rust:ty => $one:ident, $many:ident;)+) => {$(
        impl Typed for $rust { const TYPE: Type = Type::$one; }
        impl Element for $rust { const ARRAY: Type = Type::$many; }
    )+};
}

typed! {
    bool => BOOL, BOOL_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    String => TEXT, TEXT_ARRAY;
    str => TEXT, TEXT_ARRAY;
    Uuid => UUID, UUID_ARRAY;
    Moment => TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
    [u8] => BYTEA, BYTEA_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
}

impl<T: Element> Element for Option<T> {
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed + ?Sized> Typed for &T {
    const TYPE: Type = T::TYPE;
}

impl<T: Element + ?Sized> Element for &T {
    const ARRAY: Type = T::ARRAY;
}

impl<T: Element> Typed for Vec<T> {
    const TYPE: Type = T::ARRAY;
}

/// The type of a value, for [`params!`].
pub(crate) fn type_of<T: Typed + ?Sized>(_: &T) -> Type {
    T::TYPE
}

/// The values of a statement: `params![a, b]`.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$((&$value as &(dyn ::tokio_postgres::types::ToSql + Sync), $crate::typed::type_of(&$value))),*]
            as &[$crate::typed::Param<'_>]
    };
}
pub(crate) use params;

/// A moment of the database's clock: microseconds since 1970, as `timestamptz` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) i64);

/// PostgreSQL counts from the year 2000.
const EPOCH: i64 = 946_684_800_000_000;

impl Moment {
    /// Whether it is a time, and neither an infinity nor one of the server's last years, which have no microsecond
    /// since 1970.
    pub(crate) fn is_finite(self) -> bool {
        let ends = [i64::MIN, i64::MAX].map(|end| end.saturating_add(EPOCH));
        !ends.contains(&self.0)
    }
}

impl From<Timestamp> for Moment {
    fn from(time: Timestamp) -> Moment {
        Moment(time.as_micros())
    }
}

impl From<Moment> for Timestamp {
    fn from(moment: Moment) -> Timestamp {
        Timestamp::from_micros(moment.0)
    }
}

impl<'a> FromSql<'a> for Moment {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<Moment, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        // The two ends are the infinities.
        Ok(Moment(micros.saturating_add(EPOCH)))
    }

    accepts!(TIMESTAMPTZ);
}

impl ToSql for Moment {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0.saturating_sub(EPOCH).to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

/// An event's id as the database has it.
pub(crate) fn uuid(id: EventId) -> Uuid {
    Uuid::from_u128(id.as_u128())
}

/// A number as the database stores it. Ours begin at 0 and never come near the end.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number out of the database, which is not negative where the tables were not tampered with.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A partition's number as the database stores it.
pub(crate) fn partition(number: postrider_core::PartitionId) -> i16 {
    i16::try_from(number.0).unwrap_or(i16::MAX)
}

/// A span in microseconds, rounded up: what is waited for must not come early.
pub(crate) fn micros(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX / 4)
}

/// A span out of the database, or zero.
pub(crate) fn span(micros: i64) -> std::time::Duration {
    std::time::Duration::from_micros(unsigned(micros))
}
