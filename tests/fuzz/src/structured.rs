//! A document of CloudEvents.

use postrider_core::cloudevents;

/// A document, and a message with a key around it: what is read as an event is written and read again the same.
pub fn structured(input: &[u8]) {
    for key in [None, Some(""), Some("order/42")] {
        let Ok((event, marks)) = cloudevents::parse_keyed(input, key) else { continue };
        let written = cloudevents::to_json(&event, marks).expect("what was read can be written");
        // The key of the message is the event's own now.
        let again = cloudevents::parse(&written).expect("what was written can be read");
        assert_eq!(again, (event, marks), "{}", String::from_utf8_lossy(&written));
    }
}
