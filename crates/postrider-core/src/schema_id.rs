//! Headers by which the readers of a schema registry find the schema of a payload.
//!
//! They stand under their own names in every format that leaves the payload as it is, also in CloudEvents' binary mode,
//! where other headers of the application are packed into one attribute. The names are those that the registries' own
//! serializers use:
//!
//! - Confluent's, with `HeaderSchemaIdSerializer`: `__key_schema_id` and `__value_schema_id` (class `SchemaId` of package
//!   `io.confluent.kafka.serializers.schema.id`). The value is a byte 1 and the 16 bytes of the schema's GUID, and for
//!   Protobuf the indexes of the message behind it.
//! - Apicurio's, where headers are enabled: those of its class `KafkaSerdeHeaders` (`SerdeHeaders` of version 2). `globalId`
//!   and `contentId` are numbers of eight bytes, the highest first (`DefaultHeadersHandler`); the others are texts.
//! - Cloudera's (Hortonworks'), where they store the schema's version in a header: `key.schema.version.id` and
//!   `value.schema.version.id` (class `KafkaAvroSerde`), which are bytes.
//! - `schema-id`, a text, for readers of your own.
//!
//! AWS Glue's serializers write it into the payload, and Azure's into the content type.
//!
//! An event's headers are texts with names in lower case. So what is bytes stands there as a text: a GUID as it is usually
//! written, a number in decimal digits, anything else as `0x` and hexadecimal digits. Where a transport carries bytes, as
//! Kafka does, the bytes are written, and read back.

use std::borrow::Cow;
use std::fmt::Write as _;

use uuid::Uuid;

use crate::{Event, Headers};

/// The longest value that is read as bytes: no serializer writes one of a hundred.
const BYTES_MAX: usize = 256;
/// What a value begins with whose rest is hexadecimal digits.
const HEX: &str = "0x";
/// What Confluent's serializers write before a GUID.
const GUID_FOLLOWS: u8 = 1;

/// What the value of such a header is to its readers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Guid,
    Number,
    Bytes,
}

const KNOWN: [(&str, Kind); 21] = [
    ("schema-id", Kind::Text),
    ("__key_schema_id", Kind::Guid),
    ("__value_schema_id", Kind::Guid),
    ("apicurio.key.encoding", Kind::Text),
    ("apicurio.value.encoding", Kind::Text),
    ("apicurio.key.groupId", Kind::Text),
    ("apicurio.value.groupId", Kind::Text),
    ("apicurio.key.artifactId", Kind::Text),
    ("apicurio.value.artifactId", Kind::Text),
    ("apicurio.key.version", Kind::Text),
    ("apicurio.value.version", Kind::Text),
    ("apicurio.key.globalId", Kind::Number),
    ("apicurio.value.globalId", Kind::Number),
    ("apicurio.key.contentId", Kind::Number),
    ("apicurio.value.contentId", Kind::Number),
    ("apicurio.key.contentHash", Kind::Text),
    ("apicurio.value.contentHash", Kind::Text),
    ("apicurio.key.msgType", Kind::Text),
    ("apicurio.value.msgType", Kind::Text),
    ("key.schema.version.id", Kind::Bytes),
    ("value.schema.version.id", Kind::Bytes),
];

fn known(name: &str) -> Option<(&'static str, Kind)> {
    KNOWN.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// How the registry's readers spell the name of such a header; `None` of any other. An event has it in lower case.
///
/// ```
/// use postrider_core::schema_id;
/// assert_eq!(schema_id::spelling("apicurio.value.globalid"), Some("apicurio.value.globalId"));
/// assert_eq!(schema_id::spelling("x-note"), None);
/// ```
pub fn spelling(name: &str) -> Option<&'static str> {
    known(name).map(|(known, _)| known)
}

/// The event's headers of this kind, each by the name that its readers look for.
pub fn of(event: &Event) -> impl Iterator<Item = (&'static str, &str)> {
    event.headers.iter().filter_map(|(name, value)| Some((spelling(name)?, &**value)))
}

/// Takes such a header of a message for one of the event's, in lower case, unless the event has it already, however it spells
/// it there. Any other is left out.
pub fn take(headers: &mut Headers, name: &str, value: &[u8]) {
    if spelling(name).is_none() || headers.keys().any(|known| known.eq_ignore_ascii_case(name)) {
        return;
    }
    if let Some(value) = to_text(name, value) {
        headers.insert(name.to_ascii_lowercase(), value.into_owned());
    }
}

/// A header's value as its readers expect it where it is bytes; of any other header the text.
///
/// ```
/// use postrider_core::schema_id::{to_bytes, to_text};
/// assert_eq!(*to_bytes("apicurio.value.globalid", "7"), [0, 0, 0, 0, 0, 0, 0, 7]);
/// assert_eq!(*to_bytes("value.schema.version.id", "0x0300000001"), [3, 0, 0, 0, 1]);
/// assert_eq!(*to_bytes("x-note", "0x03"), *b"0x03");
/// assert_eq!(to_text("apicurio.value.globalId", &[0, 0, 0, 0, 0, 0, 0, 7]).as_deref(), Some("7"));
/// ```
pub fn to_bytes<'a>(name: &str, text: &'a str) -> Cow<'a, [u8]> {
    let plain = Cow::Borrowed(text.as_bytes());
    let Some((_, kind)) = known(name).filter(|(_, kind)| *kind != Kind::Text) else { return plain };
    let written = match kind {
        Kind::Guid => guid(text),
        Kind::Number => number(text),
        Kind::Text | Kind::Bytes => None,
    };
    written.or_else(|| bytes(text)).map_or(plain, Cow::Owned)
}

/// A header's value as an event has it; `None` where it is no text and can be none.
pub fn to_text<'a>(name: &str, value: &'a [u8]) -> Option<Cow<'a, str>> {
    let text = std::str::from_utf8(value).ok();
    let Some((_, kind)) = known(name).filter(|(_, kind)| *kind != Kind::Text) else {
        return text.map(Cow::Borrowed);
    };
    if let Some(text) = text.filter(|text| !text.chars().any(char::is_control)) {
        return Some(Cow::Borrowed(text));
    }
    if value.len() > BYTES_MAX {
        return None;
    }
    let read = match (kind, value) {
        (Kind::Guid, [GUID_FOLLOWS, guid @ ..]) => {
            guid.try_into().ok().map(|guid| Uuid::from_bytes(guid).to_string())
        }
        (Kind::Number, number) => {
            let number = number.try_into().ok().map(i64::from_be_bytes);
            number.filter(|number| *number >= 0).map(|number| number.to_string())
        }
        _ => None,
    };
    Some(Cow::Owned(read.unwrap_or_else(|| digits(value))))
}

/// Whether a header is read back as it is where its value was written as bytes.
pub fn survives(name: &str, text: &str) -> bool {
    to_text(name, &to_bytes(name, text)).as_deref() == Some(text)
}

fn guid(text: &str) -> Option<Vec<u8>> {
    let guid: Uuid = text.parse().ok()?;
    let written = || [&[GUID_FOLLOWS], &guid.as_bytes()[..]].concat();
    // Other spellings of it are read back in this one.
    (guid.to_string() == text).then(written)
}

fn number(text: &str) -> Option<Vec<u8>> {
    let number: i64 = text.parse().ok().filter(|number| *number >= 0)?;
    (number.to_string() == text).then(|| number.to_be_bytes().to_vec())
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(HEX)?.as_bytes();
    if digits.is_empty() || digits.len() % 2 != 0 || digits.len() / 2 > BYTES_MAX {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'A'..=b'F' => None,
        byte => char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()),
    };
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn digits(value: &[u8]) -> String {
    value.iter().fold(HEX.to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GUID: &str = "89791762-2336-4186-9674-299b90a802e2";

    #[test]
    fn values_are_what_the_registries_readers_expect() {
        let guid = b"\x01\x89\x79\x17\x62\x23\x36\x41\x86\x96\x74\x29\x9b\x90\xa8\x02\xe2";
        // For Protobuf the indexes of the message follow: one of 0, in short.
        let of_protobuf = [&guid[..], &[0]].concat();
        let digits = digits(&of_protobuf);
        for (name, text, bytes) in [
            ("__value_schema_id", GUID, &guid[..]),
            ("__key_schema_id", GUID, guid),
            ("__value_schema_id", &digits, &of_protobuf),
            ("apicurio.value.globalid", "7", &[0, 0, 0, 0, 0, 0, 0, 7]),
            ("apicurio.key.contentid", "9223372036854775807", &i64::MAX.to_be_bytes()),
            ("apicurio.value.encoding", "BINARY", b"BINARY"),
            ("apicurio.value.version", "7", b"7"),
            ("value.schema.version.id", "0x0300000001", &[3, 0, 0, 0, 1]),
            ("schema-id", "7", b"7"),
        ] {
            assert_eq!(*to_bytes(name, text), *bytes, "{name}: {text}");
            assert_eq!(to_text(name, bytes).as_deref(), Some(text), "{name}: {text}");
            let spelled = spelling(name).unwrap();
            assert_eq!(*to_bytes(spelled, text), *bytes, "{spelled}");
            assert_eq!(spelled.to_ascii_lowercase(), name);
        }
    }

    #[test]
    fn what_is_nothing_of_the_kind_stays_a_text() {
        let upper = GUID.to_ascii_uppercase();
        for (name, text) in [
            ("__value_schema_id", "7"),
            ("__value_schema_id", &*upper),
            ("apicurio.value.globalid", "-7"),
            ("apicurio.value.globalid", "07"),
            ("apicurio.value.globalid", "9223372036854775808"),
            ("value.schema.version.id", "0x"),
            ("value.schema.version.id", "0x0"),
            ("value.schema.version.id", "0xAB"),
            ("apicurio.value.encoding", "0x00"),
            ("x-note", "0x00"),
        ] {
            assert_eq!(*to_bytes(name, text), *text.as_bytes(), "{name}: {text}");
            assert!(survives(name, text), "{name}: {text}");
        }
        assert_eq!(to_text("x-note", &[0xff]), None);
        assert_eq!(to_text("apicurio.value.encoding", &[0xff]), None);
        assert_eq!(to_text("value.schema.version.id", &[0xff; BYTES_MAX + 1]), None);
        // There is another text for these bytes.
        assert!(!survives("apicurio.value.globalid", "0x0000000000000007"));
        assert!(!survives("value.schema.version.id", "0x41"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// F21: whatever bytes stand there, they are read as a text that can be printed, and written again as they were.
        #[test]
        fn bytes_are_read_as_a_text_and_written_again(
            nth in 0..KNOWN.len(),
            value in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let (name, kind) = KNOWN[nth];
            let text = to_text(name, &value);
            let is_plain = |text: &str| !text.chars().any(char::is_control);
            if kind != Kind::Text && !std::str::from_utf8(&value).is_ok_and(is_plain) {
                let text = text.unwrap();
                prop_assert!(is_plain(&text), "{text}");
                prop_assert_eq!(&*to_bytes(name, &text), &value[..], "{}", text);
            }
        }
    }
}
