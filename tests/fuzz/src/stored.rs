//! Texts and bytes that a store reads back, whoever wrote them there.

use postrider_core::inbox::LeftOut;
use postrider_core::{Destination, Hindrance, Preflight};

use crate::event::Reader;

/// Definitions of destinations, a line each, and behind a zero byte an event that is checked against them.
pub fn stored(input: &[u8]) {
    if let Some(left_out) = LeftOut::read(input) {
        assert_eq!(left_out.to_bytes(), input);
    }
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let Ok(text) = std::str::from_utf8(&input[..end]) else { return };
    let told = Hindrance::read(text);
    assert_eq!(Hindrance::read(&Hindrance::write(&told)), told);
    let destinations: Vec<Destination> =
        text.lines().filter_map(|line| Destination::from_definition(line).ok()).collect();
    for destination in &destinations {
        let written = destination.to_definition().expect("what was read can be written");
        let again = Destination::from_definition(&written).expect("what was written can be read");
        assert_eq!(again, *destination, "{written}");
        assert_eq!(again.to_definition().ok(), Some(written), "equal definitions, equal text");
    }
    let (event, _) = Reader(input.get(end + 1..).unwrap_or_default()).event();
    let taking = |destination: &&Destination| !destination.is_unrouted();
    let each = |destination: &Destination| Preflight::of(vec![destination.clone()]).check(&event);
    let refused = destinations.iter().filter(taking).find_map(|one| each(one).err());
    let together = Preflight::read(text).check(&event).err();
    // All are as strict as the strictest, and the first that refuses is named.
    assert_eq!(
        together.as_ref().map(ToString::to_string),
        refused.as_ref().map(ToString::to_string)
    );
}
