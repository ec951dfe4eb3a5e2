//! Type parameters, lifetimes, constants, and bounds of the struct's own.

use std::fmt::Display;

use postrider::{Event, Timestamp, TypedEvent};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(type = "order.placed")]
struct Placed<K, B>
where
    B: Clone,
{
    #[event(id)]
    id: K,
    #[event(key)]
    key: Option<K>,
    body: B,
}

#[derive(Serialize, Event)]
#[event(type = "order.noted")]
struct Noted<'a, T: Display, const N: usize> {
    #[event(id)]
    id: &'a str,
    #[event(header = "note")]
    note: &'a T,
    #[event(tenant)]
    tenant: std::option::Option<&'a T>,
    #[serde(skip)]
    #[allow(dead_code)]
    filler: [u8; N],
}

#[derive(Serialize, Event)]
#[event(type = "order.timed")]
struct Timed<I, T> {
    #[event(id)]
    id: I,
    #[event(occurred_at)]
    at: T,
}

fn main() -> Result<(), postrider::Error> {
    let event = Placed { id: 1u8, key: Some(2), body: vec![1, 2] }.to_event()?;
    assert_eq!(event.key(), "2");
    let read = Placed::<u8, Vec<i32>>::from_event(event.event())?;
    assert_eq!(read.body, [1, 2]);
    let event = Noted { id: "1", note: &2, tenant: None, filler: [0; 3] }.to_event()?;
    assert_eq!(event.event().headers["note"], "2");
    let at = Timestamp::from_micros(5);
    assert_eq!(Timed { id: 'a', at }.to_event()?.event().occurred_at, at);
    Ok(())
}
