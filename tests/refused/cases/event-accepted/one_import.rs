//! One import brings the struct `Event` and the macro; no name of the module is in the way.
#![deny(warnings)]
#![allow(dead_code)]

use postrider::{Event, TypedEvent};

mod std {}
struct Option;
struct String;
struct Headers;
struct Timestamp;
trait ToString {}

#[derive(::serde::Serialize, ::serde::Deserialize, Event)]
#[event(type = "order.placed")]
struct Placed {
    #[event(id, key, tenant, header = "a")]
    #[event(header = "b")]
    id: u8,
}

fn read(event: &Event) -> postrider::Result<Placed> {
    Placed::from_event(event)
}

fn main() -> postrider::Result<()> {
    let event = Placed { id: 7 }.to_event()?;
    assert_eq!(read(event.event())?.id, 7);
    assert_eq!(event.event().headers.len(), 2);
    Ok(())
}
