//! Postrider's configuration: one TOML file, every key overridable by the environment, and a sentence
//! with place and remedy for whatever is wrong with it.
pub mod duration;

mod address;
mod check;
mod choice;
mod config;
mod destination;
mod environment;
mod field;
mod key;
mod load;
mod name;
mod node;
mod overlay;
mod path;
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

pub use address::Address;
pub use choice::{Kind, LogFormat, LogLevel};
pub use config::{Backpressure, Config, Consume, Observe, Reconcile, Relay, Retention, Window};
pub use destination::{
    DestinationConfig, Endpoint, Limits, MatchConfig, Retry, RouteConfig, Webhook,
};
pub use environment::Environment;
pub use key::Class;
pub use load::{FILE_BYTES_MAX, Loaded, Loader, Needs};
pub use name::{EndpointName, HeaderName};
pub use overlay::RESERVED;
pub use problem::{Origin, Problem};
pub use reference::reference;
pub use resolve::Secrets;
pub use scalar::Pattern;
pub use schema::schema;
pub use secret::{SECRET_BYTES_MAX, Secret, SecretRef};
pub use size::Size;
pub use values::{Change, EffectiveValue};
