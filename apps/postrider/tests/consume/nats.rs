//! Events from a stream of NATS, with a real server.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer, stream};
use postrider_core::{Broker, Invariant};
use postrider_nats::{Credentials, NatsBroker, NatsSettings};
use postrider_testkit::nats::NatsServer;
use rustix::process::Signal;
use tokio::process::Command;

use crate::elsewhere::{acted_on_while_it_moves, moving};
use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::remote::{PATIENCE, Remote};
use crate::sidecar::Sidecar;
use crate::stage::Stage;

/// The password of the server's only user, where it has one.
const PASSWORD: &str = "hunter2";

/// A server with a stream of orders and one for dead letters, and a stage.
struct Nats {
    stage: Stage,
    server: NatsServer,
    client: async_nats::Client,
    broker: NatsBroker,
}

impl Nats {
    async fn start() -> Option<Nats> {
        Nats::with(false).await
    }

    async fn with(password: bool) -> Option<Nats> {
        let users = format!(
            "authorization {{ users = [{{ user: joe, password: {PASSWORD} }}, \
             {{ user: ann, password: older }}] }}"
        );
        let server = match NatsServer::start(if password { &users } else { "" }) {
            Ok(server) => server,
            Err(reason) => {
                println!("skipped: a server of NATS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                return None;
            }
        };
        let mut settings = NatsSettings::new(server.address());
        let mut options = async_nats::ConnectOptions::new();
        if password {
            options = options.user_and_password("joe".to_owned(), PASSWORD.to_owned());
            settings.credentials =
                Credentials::User { name: "joe".to_owned(), password: PASSWORD.into() };
        }
        let client = options.connect(server.address()).await.unwrap();
        let broker = NatsBroker::new(settings).unwrap();
        let nats = Nats { stage: Stage::new(), server, client, broker };
        // Copies are delivered: the inbox has something to absorb.
        nats.stream("SHOP", "shop.>", Duration::from_millis(100)).await;
        nats.stream("DEAD", "postrider.dead.>", Duration::from_secs(60)).await;
        Some(nats)
    }

    async fn stream(&self, name: &str, subject: &str, window: Duration) {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            duplicate_window: window,
            ..stream::Config::default()
        };
        self.jetstream().create_stream(config).await.unwrap();
    }

    fn jetstream(&self) -> jetstream::Context {
        jetstream::new(self.client.clone())
    }
}

impl Remote for Nats {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn broker(&self) -> &dyn Broker {
        &self.broker
    }

    fn topic(&self) -> &str {
        "shop.order.placed"
    }

    fn from(&self) -> String {
        format!("{}/SHOP/shop.order.*", self.server.address())
    }

    fn kind(&self) -> &str {
        "nats"
    }

    async fn settled(&self) {
        let begun = Instant::now();
        loop {
            let stream = self.jetstream().get_stream("SHOP").await.unwrap();
            let group = stream.consumer_info("billing").await.unwrap();
            if (group.num_pending, group.num_ack_pending) == (0, 0) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{group:?}");
            // waits: the server tells nobody what is settled
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

/// R076, INV-4: whatever is killed, each order is acted on once. (What a dead sidecar had in its hands comes again
/// after its time, behind later ones of its key.)
#[tokio::test]
async fn whatever_is_killed_an_order_of_a_stream_is_acted_on_once() {
    let Some(nats) = Nats::start().await else { return };
    let endpoint = nats.kill_again_and_again(30, &[]).await;
    let verdict = judge(&nats.stage, &endpoint.effects()).await;
    assert!(verdict.broken().iter().all(|it| *it == Invariant::KeyOrder), "{verdict}");
    for invariant in [Invariant::NoLoss, Invariant::NoGhost, Invariant::OneEffect] {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
}

/// R076, INV-3, INV-4: with one order in work at a time in the whole group, each key is in order as well, whatever
/// is killed.
#[tokio::test]
async fn a_group_in_order_stays_in_order_whatever_is_killed() {
    let Some(nats) = Nats::start().await else { return };
    std::fs::write(nats.stage.path("in-order.toml"), nats.configuration("in_order = true"))
        .unwrap();
    let more = ["--config", "in-order.toml"];
    let endpoint = nats.kill_again_and_again(12, &more).await;
    assert_eq!(endpoint.at_work_max(), 1);
    assert_one_effect_each(&nats.stage, &endpoint).await;
    let verdict = judge(&nats.stage, &endpoint.effects()).await;
    assert!(verdict.judged(Invariant::KeyOrder) > 0);
}

/// F10: the server is killed under a sidecar, which goes on when it is back.
#[tokio::test]
async fn a_sidecar_outlives_its_server() {
    let Some(mut nats) = Nats::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let mut sidecar = nats.sidecar(&endpoint, &[]).await;
    nats.place("1").await;
    endpoint.called(1).await;
    nats.server.kill();
    sidecar.hear("broker:").await;
    nats.server.run().unwrap();
    while tokio::time::timeout(PATIENCE, nats.client.flush()).await.unwrap().is_err() {}
    let begun = Instant::now();
    while nats.jetstream().get_stream("SHOP").await.is_err() {
        assert!(begun.elapsed() < PATIENCE);
    }
    nats.place("2").await;
    endpoint.called(2).await;
    nats.settled().await;
    sidecar.stop().await;
    assert_one_effect_each(&nats.stage, &endpoint).await;
}

/// INV-1, F10: somebody deletes the group while a sidecar waits. It is made anew and begins with the oldest message, or behind
/// what is known to be settled, which is looked for now and then; and what was done is not done again.
#[tokio::test]
async fn a_group_that_somebody_deletes_begins_anew() {
    let Some(nats) = Nats::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let sidecar = nats.sidecar(&endpoint, &[]).await;
    for key in ["1", "2", "3"] {
        nats.place(key).await;
    }
    endpoint.called(3).await;
    nats.settled().await;
    nats.jetstream().get_stream("SHOP").await.unwrap().delete_consumer("billing").await.unwrap();
    nats.place("4").await;
    endpoint.called(4).await;
    nats.settled().await;
    let ended = sidecar.stop().await;
    let known = ended.text.contains("it goes on behind message");
    assert!(ended.text.contains("it was made anew"), "{}", ended.text);
    assert!(known || !ended.text.contains(" 0 duplicates"), "from its beginning: {}", ended.text);
    assert_one_effect_each(&nats.stage, &endpoint).await;
}

/// INV-1: what the endpoint refuses for good is kept in a stream, with the reason. Without such a stream nothing
/// is started.
#[tokio::test]
async fn what_is_refused_is_kept_in_a_stream() {
    let Some(nats) = Nats::start().await else { return };
    let endpoint = Endpoint::start(|_, _| Plan::status(422)).await;
    nats.place("1").await;
    let elsewhere = ["--group", "billing", "--dead-letters", "nobody.takes.it"];
    let refused = Sidecar::start(nats.command(&nats.from(), &endpoint, &elsewhere)).ended().await;
    assert_eq!(refused.code, Some(1), "{}", refused.text);
    assert!(refused.text.contains("create one for the subject `nobody.takes.it`"));
    let sidecar = nats.sidecar(&endpoint, &[]).await;
    nats.settled().await;
    sidecar.stop().await;
    let dead = nats.jetstream().get_stream("DEAD").await.unwrap();
    let letter = dead.get_raw_message(1).await.unwrap();
    assert_eq!(letter.subject.as_str(), "postrider.dead.billing");
    let reason = letter.headers.get("postrider-dead-reason").unwrap().as_str();
    assert!(reason.contains("422"), "{reason}");
    // The group's own subjects may not take them: they would come again.
    let own = ["--group", "billing", "--dead-letters", "shop.order.dead"];
    let refused = Sidecar::start(nats.command(&nats.from(), &endpoint, &own)).ended().await;
    assert_eq!(refused.code, Some(78), "{}", refused.text);
    assert!(refused.text.contains("come again"), "{}", refused.text);
}

/// F36, R107: who we are comes from the environment or a file, is never on the command line, and a server that does
/// not know us is said to.
#[tokio::test]
async fn secrets_come_from_the_environment() {
    let Some(nats) = Nats::with(true).await else { return };
    let endpoint = Endpoint::willing().await;
    nats.place("1").await;
    let group = ["--group", "billing"];
    let open = nats.from().replace("nats://", &format!("nats://joe:{PASSWORD}@"));
    let on_the_line = Sidecar::start(nats.command(&open, &endpoint, &group)).ended().await;
    let nobody = Sidecar::start(nats.command(&nats.from(), &endpoint, &group)).ended().await;
    for (ended, code, words) in
        [(&on_the_line, 78, "--from env:NAME"), (&nobody, 1, "correct the credentials")]
    {
        assert_eq!(ended.code, Some(code), "{}", ended.text);
        assert!(ended.text.contains(words) && !ended.text.contains(PASSWORD), "{}", ended.text);
    }
    // The whole address.
    let mut command = nats.command("env:SHOP_STREAM", &endpoint, &group);
    command.env("SHOP_STREAM", &open);
    let mut sidecar = Sidecar::start(command);
    sidecar.hear("receiving").await;
    endpoint.called(1).await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains(PASSWORD), "{}", ended.text);
    // A configuration.
    let text = nats.configuration("user = \"joe\"\npassword = \"file:password\"");
    std::fs::write(nats.stage.path("postrider.toml"), text).unwrap();
    std::fs::write(nats.stage.path("password"), PASSWORD).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
    let mut sidecar = Sidecar::start(nats.placed(command));
    sidecar.hear("receiving").await;
    nats.place("2").await;
    endpoint.called(2).await;
    nats.settled().await;
    sidecar.stop().await;
    assert_one_effect_each(&nats.stage, &endpoint).await;
}

/// F36: the server's passwords are rotated under a sidecar, which has an order in work. It goes on by a reload, not
/// before, and what is in work is done once.
#[tokio::test]
async fn credentials_follow_a_reload() {
    let Some(nats) = Nats::with(true).await else { return };
    let endpoint = Endpoint::start(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let text = nats.lasting_configuration("user = \"ann\"\npassword = \"file:password\"");
    std::fs::write(nats.stage.path("postrider.toml"), text).unwrap();
    std::fs::write(nats.stage.path("password"), "older").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
    let mut sidecar = Sidecar::start(nats.placed(command));
    sidecar.hear("receiving").await;
    nats.place("1").await;
    endpoint.called(1).await;
    // The server is told, and drops whoever it does not know any more.
    let file = nats.server.folder().join("nats.conf");
    let rotated = std::fs::read_to_string(&file).unwrap().replace("older", "newer");
    std::fs::write(&file, rotated).unwrap();
    assert!(nats.server.signal("-HUP"));
    sidecar.hear("broker:").await;
    nats.place("2").await;
    // Still another password: nothing changes.
    std::fs::write(nats.stage.path("password"), "wrong").unwrap();
    sidecar.signal(Signal::HUP);
    sidecar.hear("the reload changed nothing").await;
    assert_eq!(endpoint.calls().len(), 1, "the other one waits");
    std::fs::write(nats.stage.path("password"), "newer").unwrap();
    sidecar.signal(Signal::HUP);
    sidecar.hear("secrets: read anew").await;
    endpoint.called(2).await;
    endpoint.open();
    nats.settled().await;
    sidecar.signal(Signal::HUP);
    sidecar.hear("no key and no secret has changed; certificates were read again").await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains("newer") && !ended.text.contains("older"), "{}", ended.text);
    assert_one_effect_each(&nats.stage, &endpoint).await;
}

/// INV-3: a header's new value takes no other connection, which would count as another instance.
#[tokio::test]
async fn a_reload_of_a_header_keeps_the_connection() {
    let Some(nats) = Nats::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let headers = "\n[consume.billing.headers]\nauthorization = \"file:token\"";
    std::fs::write(nats.stage.path("postrider.toml"), nats.configuration("") + headers).unwrap();
    std::fs::write(nats.stage.path("token"), "older").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
    // The client tells of each connection, where that is asked for.
    command.args(["--log", "info,async_nats=info"]);
    let mut sidecar = Sidecar::start(nats.placed(command));
    sidecar.hear("receiving").await;
    std::fs::write(nats.stage.path("token"), "newer").unwrap();
    sidecar.signal(Signal::HUP);
    sidecar.hear("secrets: read anew").await;
    nats.place("1").await;
    nats.settled().await;
    let ended = sidecar.stop().await;
    assert_eq!(endpoint.calls()[0].header("authorization"), "newer");
    assert_eq!(ended.text.matches("event: connected").count(), 1, "{}", ended.text);
}

/// INV-1: a consumer that gives messages up in silence, or takes others, is not joined.
#[tokio::test]
async fn a_consumer_that_loses_messages_is_refused() {
    let Some(nats) = Nats::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let stream = nats.jetstream().get_stream("SHOP").await.unwrap();
    let right = consumer::pull::Config {
        filter_subject: "shop.order.*".to_owned(),
        ack_wait: Duration::from_secs(7),
        ..consumer::pull::Config::default()
    };
    let few = consumer::pull::Config { max_deliver: 5, ..right.clone() };
    let other = consumer::pull::Config { filter_subject: "shop.x".to_owned(), ..right.clone() };
    let careless =
        consumer::pull::Config { ack_policy: consumer::AckPolicy::None, ..right.clone() };
    for (group, config, words) in [
        ("few", few, "after 5 deliveries"),
        ("other", other, "takes the subjects shop.x"),
        ("careless", careless, "must be explicit"),
    ] {
        let config = consumer::pull::Config { durable_name: Some(group.to_owned()), ..config };
        stream.create_consumer(config).await.unwrap();
        let command = nats.command(&nats.from(), &endpoint, &["--group", group]);
        let ended = Sidecar::start(command).ended().await;
        assert_eq!(ended.code, Some(78), "{}", ended.text);
        assert!(ended.text.contains(words), "{}", ended.text);
    }
    // One that an operator made is joined as it is.
    let right = consumer::pull::Config { durable_name: Some("billing".to_owned()), ..right };
    stream.create_consumer(right).await.unwrap();
    nats.place("1").await;
    let sidecar = nats.sidecar(&endpoint, &[]).await;
    nats.settled().await;
    sidecar.stop().await;
    assert_one_effect_each(&nats.stage, &endpoint).await;
}

/// F36: the name of its server leads elsewhere under a sidecar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_follows_the_name_of_its_server() {
    let Some(nats) = Nats::start().await else { return };
    let Some(mut moving) = moving(&nats.stage, nats.server.port()).await else { return };
    std::fs::write(nats.stage.path("short.toml"), nats.configuration("in_order = true")).unwrap();
    let own = format!("127.0.0.1:{}", nats.server.port());
    acted_on_while_it_moves(&nats, &mut moving, &own).await;
}
