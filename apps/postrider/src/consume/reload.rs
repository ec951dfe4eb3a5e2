//! SIGHUP: reads the configuration again, and receives by a new connection where who we are has changed.
//!
//! Invariant: a reload does everything or nothing. What is wrong, or what the servers refuse, leaves the sidecar as it
//! was; and no event is lost or tried in vain because of one.

use std::sync::Arc;
use std::time::Duration;

use postrider_config::{Class, Config, Secrets};
use postrider_core::Subscription;

use super::ConsumeArgs;
use super::plan::Plan;
use super::request::Extra;
use super::source::{Source, Wishes};
use crate::certificate::{self, Ends};
use crate::failure::Failure;
use crate::serve::Token;
use crate::{logs, terminal};

/// The first pause after servers were away. Short: a server that restarts is back in seconds.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause: how late a sidecar may be when its servers are back.
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// What a reload compares with, and changes.
pub(super) struct Reloader<'a> {
    args: &'a ConsumeArgs,
    present: Config,
    secrets: Secrets,
    source: Source,
    wishes: Wishes,
    /// The listener's token.
    token: Token,
    /// The operator's own headers of every call.
    headers: Extra,
    /// Whether others can reach the listener, so that it must have a token.
    listens_openly: bool,
    /// The handler, by which it is known when its certificate ends.
    handler: String,
    ends: Ends,
}

/// What was read again.
pub(super) struct Reread {
    config: Config,
    secrets: Secrets,
    source: Source,
    wishes: Wishes,
    log: String,
    token: Token,
    headers: Extra,
    said: Vec<String>,
}

impl Reread {
    /// Connects; and again, while the servers are away.
    ///
    /// # Errors
    /// What does not pass by itself.
    pub(super) async fn connect(self) -> Result<(Reread, Arc<dyn Subscription>), Failure> {
        let mut pause = PAUSE;
        loop {
            match self.source.subscribe(&self.wishes).await {
                Ok(subscription) => return Ok((self, subscription)),
                Err(failure) if !failure.is_transient() => return Err(failure),
                Err(failure) => terminal::note(&failure.render(terminal::style())),
            }
            terminal::note(&format!("the reload waits for the servers; tried again in {pause:?}"));
            // waits: the servers tell nobody that they are back
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl<'a> Reloader<'a> {
    pub(super) fn new(
        args: &'a ConsumeArgs,
        plan: &Plan,
        source: Source,
        wishes: Wishes,
    ) -> Reloader<'a> {
        let (present, secrets) = (plan.present.clone(), plan.secrets.clone());
        let listens_openly = plan.listen.is_some_and(|address| !address.ip().is_loopback());
        let (token, headers) = (plan.token.clone(), plan.headers.clone());
        let (handler, ends) = (plan.handler.to_string(), Ends::default());
        let reloader = Reloader {
            args,
            present,
            secrets,
            source,
            wishes,
            token,
            headers,
            listens_openly,
            handler,
            ends,
        };
        reloader.learn_ends();
        reloader
    }

    /// Subscribes with what was read last.
    ///
    /// # Errors
    /// What the broker says.
    pub(super) async fn subscribe(&self) -> Result<Arc<dyn Subscription>, Failure> {
        self.source.subscribe(&self.wishes).await
    }

    /// When our certificate ends.
    pub(super) fn ends(&self) -> Ends {
        self.ends.clone()
    }

    fn learn_ends(&self) {
        let wishes = &self.wishes;
        let path = certificate::of_source(wishes.kafka.as_ref(), wishes.nats.as_ref());
        self.ends.learn(path.map(|path| (self.handler.clone(), path)));
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// Reads everything again, and changes nothing yet.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&self) -> Result<Reread, Failure> {
        let plan = Plan::of(self.args)?;
        if self.listens_openly && !plan.token.is_there() {
            return Err(Failure::config(
                "the listener can be reached from outside, and needs a token",
            ));
        }
        let read = Source::parse(&plan.from.0)?;
        let mut said: Vec<String> = Vec::new();
        let source = if read.is_where(&self.source) {
            read
        } else {
            said.push("reloaded: the source is another; it takes effect at the next start".into());
            self.source.clone()
        };
        let mut wishes = self.wishes.clone();
        wishes.secrets = plan.secrets_of_source();
        if let (Some(present), Some(read)) = (wishes.nats.take(), &plan.nats) {
            wishes.nats = Some(present.with_login_of(read));
        }
        if let (Some(present), Some(read)) = (wishes.kafka.take(), &plan.kafka) {
            wishes.kafka = Some(present.with_login_of(read));
        }
        if let (Some(present), Some(read)) = (wishes.sqs.take(), &plan.sqs) {
            wishes.sqs = Some(present.with_login_of(read));
        }
        let changes = Config::diff(&self.present, &plan.present);
        said.extend(changes.iter().map(|change| match change.class {
            Class::Live => format!("reloaded: {change}"),
            _ => format!("reloaded: {change}; it takes effect at the next start"),
        }));
        if plan.secrets != self.secrets || source != self.source {
            said.push("secrets: read anew, and changed".to_owned());
        }
        if said.is_empty() {
            said.push(
                "reloaded: no key and no secret has changed; certificates were read again"
                    .to_owned(),
            );
        }
        let (config, secrets, log) = (plan.present, plan.secrets, plan.log);
        let (token, headers) = (plan.token, plan.headers);
        Ok(Reread { config, secrets, source, wishes, log, token, headers, said })
    }

    /// Whether it takes another connection. A client of Kafka reads certificates once, so they may be others in files
    /// of the same names.
    pub(super) fn is_another(&self, read: &Reread) -> bool {
        let wishes = &read.wishes;
        let of_files = wishes.kafka.as_ref().is_some_and(|kafka| kafka.tls);
        let is_same = read.source == self.source && *wishes == self.wishes;
        read.source.is_remote() && (of_files || !is_same)
    }

    /// What was read counts from now on.
    pub(super) fn accept(&mut self, read: Reread) {
        if let Err(failure) = logs::change(&read.log) {
            terminal::note(&failure.render(terminal::style()));
        }
        self.token.follow(&read.token);
        self.headers.follow(&read.headers);
        read.said.iter().for_each(|line| terminal::note(line));
        self.present = read.config;
        self.secrets = read.secrets;
        self.source = read.source;
        self.wishes = read.wishes;
        self.learn_ends();
    }
}

/// Says that nothing came of it.
pub(super) fn say_that_nothing_changed(failure: &Failure) {
    terminal::note(&failure.render(terminal::style()));
    terminal::note("the reload changed nothing; the sidecar goes on as it was");
}
