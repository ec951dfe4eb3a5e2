//! Postrider's relay engine: carries events from an outbox to a broker.
//!
//! The decisions are a pure state machine, [`Machine`]: what happened goes in with the time, commands
//! come out. The shell around it, [`Relay`], performs the commands with a store and brokers, and
//! can run inside any process: [`RelayBuilder::start`], then [`RelayHandle::drain`] or
//! [`RelayHandle::abort`].
//!
//! The main loop is [`Machine::step`]; a module per verb holds its part.

mod again;
mod attempt;
mod away;
mod carry;
mod clock;
mod command;
mod disable;
mod drain;
mod due;
mod endpoint;
mod entering;
mod fetch;
mod flow;
mod gauge;
mod health;
mod hold;
mod hot;
mod judge;
mod lane;
mod late;
mod lease;
mod log;
mod machine;
mod notice;
mod observe;
mod outage;
mod outcome;
mod outlet;
mod owned;
mod pace;
mod part;
mod paused;
mod perform;
mod presence;
mod progress;
mod publish;
mod purge;
mod range;
mod read_range;
mod relay;
mod relieve;
mod report;
mod retake;
mod room;
mod routes;
mod run;
mod serve;
mod settings;
mod settle;
mod skip;
mod spare;
mod subject;
mod sweep;
mod take;
mod trial;
mod trouble;
mod turn;
mod violation;
mod waits;
mod wake;
mod window;

pub use clock::SystemClock;
pub use command::{Answer, Command, Input, Ticket};
pub use drain::{Ending, Target};
pub use health::{Blocker, Health, State, Tally};
pub use machine::Machine;
pub use notice::{Filling, LostBecause, Notice};
pub use observe::{Observer, Observers, Point};
pub use perform::Performer;
pub use purge::Retention;
pub use relay::{Relay, RelayBuilder, RelayHandle, Report};
pub use settings::Settings;
pub use spare::SAVES_APART_MAX;
pub use subject::Subject;
pub use violation::Violations;
