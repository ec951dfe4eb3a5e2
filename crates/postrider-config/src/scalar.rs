//! The single values: how each is read, checked against the limits of its key, and shown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postrider_core::{RecordKey, Start, Template, Timestamp};

use crate::duration;
use crate::field::Scalar;
use crate::key::{Json, Key, Leaf};
use crate::node::{Node, Value};
use crate::reading::Complaint;
use crate::size::Size;

type Parsed<T> = Option<Result<T, Complaint>>;

/// Checks a value against the limits of its key, both read by the same rule.
fn within<T: PartialOrd>(
    value: T,
    shown: &str,
    key: &Key,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, Complaint> {
    let outside = |limit: &str, word: &str| {
        Err(Complaint::new(
            format!("`{}` is {shown}; {word} {limit}", key.name),
            format!(
                "write {} = {}",
                key.name,
                key.shape.leaf().map_or_else(String::new, |leaf| leaf.literal(limit))
            ),
        ))
    };
    if read(key.min).is_some_and(|min| value < min) {
        return outside(key.min, "at least");
    }
    if read(key.max).is_some_and(|max| value > max) {
        return outside(key.max, "at most");
    }
    Ok(value)
}

pub(crate) fn unreadable(key: &Key, why: &str) -> Complaint {
    Complaint::new(format!("`{}`: {why}", key.name), "")
}

impl Scalar for Duration {
    const LEAF: Leaf = Leaf {
        word: "duration",
        expected: "a duration, a number and a unit, like \"15s\"",
        example: "15s",
        json: Json::Text("^[0-9]+(ms|s|m|h|d)$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<Duration> {
        let text = match &node.value {
            Value::Text(text) | Value::Loose(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => return None,
        };
        Some(match duration::parse(&text) {
            Err(why) => Err(unreadable(key, &why)),
            Ok(span) => {
                within(span, &duration::print(span), key, |limit| duration::parse(limit).ok())
            }
        })
    }

    fn shown(&self) -> String {
        duration::print(*self)
    }

    fn placeholder() -> Duration {
        Duration::ZERO
    }
}

impl Scalar for Size {
    const LEAF: Leaf = Leaf {
        word: "size",
        expected: "a size, a number and a unit, like \"16MiB\"",
        example: "16MiB",
        json: Json::Text("^[0-9]+(B|kB|KiB|MB|MiB|GB|GiB)$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<Size> {
        let text = match &node.value {
            Value::Text(text) | Value::Loose(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => return None,
        };
        Some(match text.parse::<Size>() {
            Err(why) => Err(unreadable(key, &why)),
            Ok(size) => within(size, &size.to_string(), key, |limit| limit.parse().ok()),
        })
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Size {
        Size::from_bytes(0)
    }
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl Scalar for $kind {
            const LEAF: Leaf = Leaf {
                word: "number",
                expected: "a whole number, like 10",
                example: "10",
                json: Json::Integer,
                secret: false,
            };

            fn parse(node: &Node, key: &Key) -> Parsed<$kind> {
                let number = match &node.value {
                    Value::Integer(number) => *number,
                    Value::Loose(text) => text.parse().ok()?,
                    _ => return None,
                };
                let checked = within(number, &number.to_string(), key, |limit| limit.parse().ok());
                Some(checked.and_then(|number| {
                    <$kind>::try_from(number).map_err(|_| {
                        unreadable(key, &format!("at most {}, at least 0", <$kind>::MAX))
                    })
                }))
            }

            fn shown(&self) -> String {
                self.to_string()
            }

            fn placeholder() -> $kind {
                0
            }
        }
    )*};
}
whole!(u32, u64);

impl Scalar for f64 {
    const LEAF: Leaf = Leaf {
        word: "number",
        expected: "a number, like 2.0",
        example: "2.0",
        json: Json::Number,
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<f64> {
        let number = match &node.value {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            Value::Loose(text) => text.parse().ok()?,
            _ => return None,
        };
        if !number.is_finite() {
            return Some(Err(unreadable(key, "the number must be finite")));
        }
        Some(within(number, &number.to_string(), key, |limit| limit.parse().ok()))
    }

    fn shown(&self) -> String {
        format!("{self:?}")
    }

    fn placeholder() -> f64 {
        1.0
    }
}

impl Scalar for bool {
    const LEAF: Leaf = Leaf {
        word: "flag",
        expected: "true or false",
        example: "true",
        json: Json::Flag,
        secret: false,
    };

    fn parse(node: &Node, _key: &Key) -> Parsed<bool> {
        match &node.value {
            Value::Flag(flag) => Some(Ok(*flag)),
            Value::Loose(text) => text.parse().ok().map(Ok),
            _ => None,
        }
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> bool {
        false
    }
}

/// Names of groups and the like: what the stores' columns take.
impl Scalar for String {
    const LEAF: Leaf = Leaf {
        word: "text",
        expected: "a text in quotes",
        example: "name",
        json: Json::Text("^[^\\x00-\\x1f]{1,255}$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<String> {
        let text = node.text()?;
        Some(match text_fault(text) {
            None => Ok(text.to_owned()),
            Some(why) => Err(unreadable(key, why)),
        })
    }

    fn shown(&self) -> String {
        self.clone()
    }

    fn placeholder() -> String {
        String::new()
    }
}

/// What is wrong with a short text, if anything.
pub(crate) fn text_fault(text: &str) -> Option<&'static str> {
    match text {
        "" => Some("it is empty; leave the key out instead"),
        _ if text.len() > 255 => Some("it has more than 255 bytes"),
        _ if text.chars().any(char::is_control) => Some("it has a control character"),
        _ => None,
    }
}

impl Scalar for PathBuf {
    const LEAF: Leaf = Leaf {
        word: "path",
        expected: "a path in quotes, like \"/var/lib/postrider\"",
        example: "/var/lib/postrider",
        json: Json::Text("^[^\\x00]+$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<PathBuf> {
        let text = node.text()?;
        let valid = !text.is_empty() && !text.contains('\0') && text.len() <= 4096;
        Some(if valid { Ok(text.into()) } else { Err(unreadable(key, "it is no path")) })
    }

    fn shown(&self) -> String {
        self.display().to_string()
    }

    fn placeholder() -> PathBuf {
        PathBuf::new()
    }
}

impl Scalar for SocketAddr {
    const LEAF: Leaf = Leaf {
        word: "address and port",
        expected: "an address and a port, like \"127.0.0.1:9464\"",
        example: "127.0.0.1:9464",
        json: Json::Text("^.+:[0-9]{1,5}$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<SocketAddr> {
        let text = node.text()?;
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        Some(named.as_deref().unwrap_or(text).parse().map_err(|_| {
            let port = text.rsplit_once(':').map_or("", |(_, port)| port);
            let port = port.parse::<u16>().unwrap_or(9464);
            Complaint::new(
                format!("`{}` is an IP address and a port", key.name),
                format!("write \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for every interface"),
            )
        }))
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }
}

impl Scalar for Template {
    const LEAF: Leaf = Leaf {
        word: "template",
        expected: "a template in quotes, like \"shop.{event_type}\"",
        example: "{event_type}",
        json: Json::Text("^.+$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<Template> {
        let text = node.text()?;
        Some(text.parse().map_err(|error: postrider_core::Error| {
            let why = error.to_string();
            unreadable(key, why.strip_prefix("parse template: ").unwrap_or(&why))
        }))
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Template {
        "{event_type}".parse().expect("invariant: a valid template")
    }
}

impl Scalar for RecordKey {
    const LEAF: Leaf = Leaf {
        word: "template",
        expected: "a template in quotes, like \"{aggregate_type}:{aggregate_id}\"",
        example: "{aggregate_id}",
        json: Json::Text("^.+$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<RecordKey> {
        let text = node.text()?;
        Some(text.parse().map_err(|error: postrider_core::Error| {
            let why = error.to_string();
            unreadable(key, why.strip_prefix("parse record key: ").unwrap_or(&why))
        }))
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> RecordKey {
        RecordKey::aggregate_id()
    }
}

impl Scalar for Start {
    const LEAF: Leaf = Leaf {
        word: "start",
        expected: "\"now\", \"beginning\", or a time like \"2026-11-21T10:00:00Z\"",
        example: "now",
        json: Json::Text("^(now|beginning|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].*)$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Parsed<Start> {
        let text = match &node.value {
            Value::Text(text) | Value::Loose(text) | Value::Time(text) => text.as_str(),
            _ => return None,
        };
        Some(match text {
            "now" => Ok(Start::Now),
            "beginning" => Ok(Start::Beginning),
            time => time.parse::<Timestamp>().map(Start::At).map_err(|_| {
                Complaint::new(
                    format!(
                        "`{}` is neither \"now\", nor \"beginning\", nor a time with its zone",
                        key.name
                    ),
                    "write a time like \"2026-11-21T10:00:00Z\"",
                )
            }),
        })
    }

    fn shown(&self) -> String {
        match self {
            Start::Now => "now".into(),
            Start::Beginning => "beginning".into(),
            Start::At(time) => time.to_string(),
        }
    }

    fn placeholder() -> Start {
        Start::Now
    }
}
