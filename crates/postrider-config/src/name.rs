//! The names that stand as keys in the file: of destinations, handlers, endpoints, and headers.

use std::fmt;

use postrider_core::{Destination, DestinationId, HandlerName};

use crate::field::Name;
use crate::reading::Complaint;
use crate::scalar::text_fault;

/// What the core says of a name, with what to do.
fn of_core<T>(result: postrider_core::Result<T>) -> Result<T, Complaint> {
    result.map_err(|error| {
        let why = error.to_string();
        let why = why.split_once(": ").map_or(&*why, |(_, why)| why);
        Complaint::new(why.to_owned(), "choose another name")
    })
}

impl Name for DestinationId {
    const WHAT: &'static str = "destination";
    const PLACEHOLDER: &'static str = "NAME";
    const PATTERN: &'static str = "^[A-Za-z0-9._:-]{1,64}$";

    fn parse(text: &str) -> Result<DestinationId, Complaint> {
        if text == Destination::UNROUTED {
            return Err(Complaint::new(
                "`unrouted` is built in: it takes what no other destination takes",
                "choose another name",
            ));
        }
        of_core(DestinationId::new(text))
    }

    fn text(&self) -> &str {
        self.as_str()
    }
}

impl Name for HandlerName {
    const WHAT: &'static str = "handler";
    const PLACEHOLDER: &'static str = "NAME";
    const PATTERN: &'static str = "^[A-Za-z0-9._:-]{1,128}$";

    fn parse(text: &str) -> Result<HandlerName, Complaint> {
        of_core(HandlerName::new(text))
    }

    fn text(&self) -> &str {
        self.as_str()
    }
}

macro_rules! text_name {
    ($(#[doc = $doc:literal])* $name:ident, $what:literal, $placeholder:literal, $pattern:literal, $fault:path) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        // So that a map can be asked with what a template rendered.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Name for $name {
            const WHAT: &'static str = $what;
            const PLACEHOLDER: &'static str = $placeholder;
            const PATTERN: &'static str = $pattern;

            fn parse(text: &str) -> Result<$name, Complaint> {
                match $fault(text) {
                    None => Ok($name(text.to_owned())),
                    Some(why) => Err(Complaint::new(
                        format!(concat!($what, " name `{}`: {}"), text.escape_debug(), why),
                        "choose another name",
                    )),
                }
            }

            fn text(&self) -> &str {
                &self.0
            }
        }
    };
}

text_name!(
    /// The name of an endpoint: what the topic of a route becomes for its events.
    EndpointName, "endpoint", "ENDPOINT", "^[^\\x00-\\x1f]{1,255}$", endpoint_fault
);

text_name!(
    /// The name of a request header, in lower case.
    HeaderName, "header", "HEADER", "^[a-z0-9!#$%&'*+.^_`|~-]{1,128}$", header_fault
);

text_name!(
    /// The name of a header that a route adds to its messages.
    MessageHeader, "header", "HEADER", "^[A-Za-z0-9._-]{1,128}$", message_header_fault
);

/// Headers that say how the request is framed: the broker for webhooks refuses them as well.
const TAKEN: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Families of headers that a request sets itself.
const TAKEN_PREFIXES: [&str; 4] = ["ce-", "postrider-", "proxy-", "webhook-"];

fn message_header_fault(name: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
        return Some("it has 1 to 128 letters, digits, and the signs . _ -");
    }
    let lower = name.to_ascii_lowercase();
    let reserved = ["postrider-", "nats-"].iter().any(|prefix| lower.starts_with(prefix));
    (reserved || lower == "content-type" || lower == "id").then_some("the message sets it itself")
}

fn endpoint_fault(name: &str) -> Option<&'static str> {
    let url =
        name.contains("://").then_some("it is a URL, and a topic that is a URL names no endpoint");
    url.or_else(|| text_fault(name))
}

fn header_fault(name: &str) -> Option<&'static str> {
    let token =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || name.len() > 128 {
        return Some("it has 1 to 128 characters");
    }
    if !name.chars().all(token) {
        return Some("it is written in lower case, without spaces and colons");
    }
    let reserved = TAKEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (reserved || TAKEN.contains(&name)).then_some("the request sets it itself")
}
