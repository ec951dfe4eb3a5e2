//! Postrider's configuration: one TOML file, every key overridable by the environment, and for whatever
//! is wrong with it the place, the line, and what to write instead.
//!
//! ```
//! use postrider_config::{Environment, Loader};
//!
//! let environment = Environment::default();
//! let loader = Loader::new(&environment).text("postrider.toml", "[relay]\nlease = \"20\"\n");
//! let problems = loader.load().unwrap_err();
//! assert_eq!(
//!     problems[0].to_string(),
//!     r#"postrider.toml:2:9: `lease`: the unit is missing: write 20s, 20ms or 20m
//!   2 | lease = "20"
//!     |         ^^^^"#
//! );
//! ```
//!
//! | To | use |
//! |---|---|
//! | read a file and the environment | [`Config::load`], or [`Loader`] with more wishes |
//! | know what is in effect, and who wrote it | [`Loaded::values`] |
//! | read the secrets that it refers to | [`Loaded::resolve`] |
//! | get the definition of a destination | [`DestinationConfig::definition`] |
//! | know what a reload changes | [`Config::diff`] |
//! | describe the file to an editor or a reader | [`schema`], [`reference()`] |
//! | let a program know what each kind of broker takes | [`brokers()`] |
//!
//! Invariant: a key is declared once, as a field with its documentation, default, and limits; no
//! secret stands in a message, a value that is shown, or a `Debug`.

pub mod duration;

mod address;
mod aws;
mod broker;
mod check;
mod choice;
mod config;
mod destination;
mod dynamodb;
mod environment;
mod field;
mod file;
mod kafka;
mod key;
mod listing;
mod load;
mod name;
mod nats;
mod node;
mod overlay;
mod own_table;
mod path;
mod pattern;
mod postgres;
mod problem;
mod reading;
mod reference;
mod resolve;
mod scalar;
mod schema;
mod secret;
mod section;
mod size;
mod source;
mod syntax;
mod values;
mod webhook;

pub use address::Address;
pub use aws::{AwsLogin, EventBridge, Sns, Sqs, SqsSource};
pub use choice::{
    CallFormat, KafkaCompression, KafkaMechanism, Kind, LogFormat, LogLevel, Pooler, TableLayout,
};
pub use config::{Backpressure, Config, Consume, Observe, Reconcile, Relay, Retention, Window};
pub use destination::{DestinationConfig, Limits, MatchConfig, Retry, RouteConfig};
pub use dynamodb::{DerivedConfig, DynamoDbConfig};
pub use environment::Environment;
pub use kafka::{Kafka, KafkaLogin, KafkaSource};
pub use key::Class;
pub use listing::brokers;
pub use load::{FILE_BYTES_MAX, Loaded, Loader, Needs};
pub use name::{EndpointName, HeaderName, MessageHeader};
pub use nats::{Nats, NatsLogin, NatsSource};
pub use overlay::RESERVED;
pub use own_table::OwnTableConfig;
pub use pattern::Pattern;
pub use postgres::{PostgresConfig, PublishAfter};
pub use problem::{Origin, Problem};
pub use reference::reference;
pub use resolve::Secrets;
pub use schema::schema;
pub use secret::{SECRET_BYTES_MAX, Secret, SecretRef};
pub use size::Size;
pub use values::{Change, EffectiveValue};
pub use webhook::{Endpoint, Webhook};
