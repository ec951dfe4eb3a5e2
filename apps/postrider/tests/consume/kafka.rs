//! Events from topics of Kafka, with a real server.

use std::time::{Duration, Instant};

use postrider_core::{Broker, Invariant};
use postrider_kafka::{KafkaBroker, KafkaSettings, Mechanism, Sasl};
use postrider_testkit::kafka::{KafkaServer, Stored, artifacts};
use postrider_testkit::own_server::free_ports;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::task::spawn_blocking;

use crate::elsewhere::{acted_on_while_it_moves, moving};
use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::remote::{PATIENCE, Remote};
use crate::sidecar::Sidecar;
use crate::stage::Stage;

/// The password of the server's only user, where it has one.
const PASSWORD: &str = "hunter2";

/// Users that send their password, on the listener of the clients.
const USERS: &str = "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.client.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"joe\" password=\"hunter2\" user_joe=\"hunter2\" user_ann=\"older\";";

/// Short: a killed sidecar's partitions go to the next one soon.
const SESSION: &str = "session = \"1s\"";

/// A server with a topic of orders and one for dead letters, and a stage.
struct Kafka {
    stage: Stage,
    server: KafkaServer,
    broker: KafkaBroker,
}

impl Kafka {
    async fn start() -> Option<Kafka> {
        let kafka = Kafka::bare("").await?;
        kafka.topics().await;
        Some(kafka)
    }

    /// The topics, and a configuration with short sessions.
    async fn topics(&self) {
        self.server.create("orders", 2, &[]).await;
        self.server.create("postrider.dead.billing", 1, &[]).await;
        std::fs::write(self.stage.path("short.toml"), self.configuration(SESSION)).unwrap();
    }

    async fn bare(properties: &'static str) -> Option<Kafka> {
        let start = move || KafkaServer::start(properties, &[]);
        let mut kafka = Kafka::with(Stage::new(), start).await?;
        if !properties.is_empty() {
            let mut settings = KafkaSettings::new(&kafka.server.address());
            settings.sasl = Some(Sasl {
                mechanism: Mechanism::Plain,
                user: "joe".to_owned(),
                password: PASSWORD.into(),
            });
            kafka.broker = KafkaBroker::new(settings).unwrap();
        }
        Some(kafka)
    }

    async fn with(
        stage: Stage,
        start: impl FnOnce() -> Result<KafkaServer, String> + Send + 'static,
    ) -> Option<Kafka> {
        if let Err(reason) = artifacts() {
            println!("skipped: a server of Kafka: {reason}");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return None;
        }
        let server = spawn_blocking(start).await.unwrap().unwrap();
        let broker = KafkaBroker::new(KafkaSettings::new(&server.address())).unwrap();
        Some(Kafka { stage, server, broker })
    }

    /// With users, and topics that one of them made.
    async fn guarded() -> Option<Kafka> {
        let mut kafka = Kafka::bare(USERS).await?;
        let joe = [
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "joe"),
            ("sasl.password", PASSWORD),
        ];
        kafka.server.let_in(&joe);
        kafka.server.create("orders", 2, &[]).await;
        kafka.server.create("postrider.dead.billing", 1, &[]).await;
        Some(kafka)
    }

    /// Writes a configuration for a user whose password stands in a file. Nothing in work is another's before its time on
    /// a busy machine.
    fn configure(&self, user: &str, password: &str) {
        let text = format!(
            "user = \"{user}\"\npassword = \"file:password\"\nmechanism = \"plain\"\nsession = \"10s\""
        );
        let text = self.lasting_configuration(&text);
        std::fs::write(self.stage.path("postrider.toml"), text).unwrap();
        std::fs::write(self.stage.path("password"), password).unwrap();
    }

    async fn sidecar_of_ann(&self, endpoint: &Endpoint) -> Sidecar {
        self.configure("ann", "older");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
        let mut sidecar = Sidecar::start(self.placed(command));
        sidecar.hear("receiving").await;
        sidecar
    }

    async fn dead(&self) -> Vec<Stored> {
        self.server.stored("postrider.dead.billing").await
    }
}

impl Remote for Kafka {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn broker(&self) -> &dyn Broker {
        &self.broker
    }

    fn topic(&self) -> &str {
        "orders"
    }

    fn from(&self) -> String {
        format!("kafka://{}/orders", self.server.address())
    }

    fn kind(&self) -> &str {
        "kafka"
    }

    async fn settled(&self) {
        let begun = Instant::now();
        loop {
            let left = self.server.unsettled("orders", "billing").await;
            if left == Some(0) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{left:?} are left");
            // waits: the server tells nobody what is committed
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// R076, INV-3, INV-4: whatever is killed, each order is acted on once, and those of a key in their order.
#[tokio::test]
async fn whatever_is_killed_an_order_of_a_topic_is_acted_on_once() {
    let Some(kafka) = Kafka::start().await else { return };
    let endpoint = kafka.kill_again_and_again(30, &["--config", "short.toml"]).await;
    assert_one_effect_each(&kafka.stage, &endpoint).await;
    let verdict = judge(&kafka.stage, &endpoint.effects()).await;
    for invariant in
        [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect]
    {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
}

/// F10: the server is killed under a sidecar, which goes on when it is back; and one that starts while the server is
/// away waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_outlives_its_server() {
    let Some(mut kafka) = Kafka::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let more = ["--config", "short.toml"];
    let mut sidecar = kafka.sidecar(&endpoint, &more).await;
    kafka.place("1").await;
    endpoint.called(1).await;
    kafka.server.kill();
    sidecar.hear("broker:").await;
    let early = [&["--group", "billing"][..], &more[..]].concat();
    let mut early = Sidecar::start(kafka.command(&kafka.from(), &endpoint, &early));
    early.hear("nothing is received yet").await;
    tokio::task::block_in_place(|| kafka.server.run().unwrap());
    early.hear("receiving").await;
    kafka.place("2").await;
    kafka.place("3").await;
    endpoint.called(3).await;
    kafka.settled().await;
    sidecar.stop().await;
    early.stop().await;
    assert_one_effect_each(&kafka.stage, &endpoint).await;
}

/// INV-1, F10: somebody deletes the group while its only sidecar stands still. It begins anew with the oldest record,
/// and what was done is not done again.
#[tokio::test]
async fn a_group_that_somebody_deletes_begins_anew() {
    let Some(kafka) = Kafka::start().await else { return };
    let endpoint = Endpoint::willing().await;
    let sidecar = kafka.sidecar(&endpoint, &["--config", "short.toml"]).await;
    for key in ["1", "2", "3"] {
        kafka.place(key).await;
    }
    endpoint.called(3).await;
    kafka.settled().await;
    sidecar.signal(Signal::STOP);
    let (begun, admin) = (Instant::now(), kafka.server.admin());
    // A group with a member cannot be deleted; one that is silent is none after its session.
    loop {
        let deleted = admin.delete_groups(&["billing"], &Default::default()).await.unwrap();
        if deleted[0].is_ok() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{deleted:?}");
    }
    kafka.place("4").await;
    sidecar.signal(Signal::CONT);
    endpoint.called(4).await;
    kafka.settled().await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains(" 0 duplicates"), "it began anew: {}", ended.text);
    assert_one_effect_each(&kafka.stage, &endpoint).await;
}

/// R121, INV-4: the servers forget a group whose sidecar was away, and have records that are older than its inbox remembers. A handler that
/// has done nothing yet does all of them; one that has is given nothing, unless a person says so.
#[tokio::test]
async fn a_forgotten_group_is_not_given_what_nobody_remembers() {
    let Some(kafka) = Kafka::start().await else { return };
    kafka.place("1").await;
    let placed = kafka.server.stored("orders").await.remove(0);
    kafka.server.create("kept", 1, &[("retention.ms", "-1")]).await;
    kafka.server.store_aged("kept", &placed, Duration::from_secs(40 * 86_400)).await;
    let endpoint = Endpoint::willing().await;
    let from = kafka.from().replace("/orders", "/kept");
    let sidecar = |more: &[&str]| {
        let usual = ["--group", "billing", "--config", "short.toml", "--lease", "30s"];
        Sidecar::start(kafka.command(&from, &endpoint, &[&usual, more].concat()))
    };
    let settled = async |mut sidecar: Sidecar| {
        sidecar.hear("receiving").await;
        let begun = Instant::now();
        while kafka.server.unsettled("kept", "billing").await != Some(0) {
            assert!(begun.elapsed() < PATIENCE);
        }
        sidecar.stop().await.text
    };
    let first = settled(sidecar(&[])).await;
    assert!(first.contains("billing has done nothing yet"), "{first}");
    let second = settled(sidecar(&[])).await;
    assert!(!second.contains("nothing yet"), "the control: it has its place: {second}");
    let deleted = kafka.server.admin().delete_groups(&["billing"], &Default::default()).await;
    assert!(deleted.unwrap()[0].is_ok());
    let refused = sidecar(&[]).ended().await;
    assert_eq!(refused.code, Some(78), "{}", refused.text);
    for words in ["Nothing was received", "--unguarded", "PR-1711"] {
        assert!(refused.text.contains(words), "{words}: {}", refused.text);
    }
    settled(sidecar(&["--unguarded"])).await;
    assert_eq!(endpoint.calls().len(), 1, "this one the inbox still knew");
}

/// INV-1: what the endpoint refuses for good is kept in a topic, with the reason. Without such a topic nothing is
/// started.
#[tokio::test]
async fn what_is_refused_is_kept_in_a_topic() {
    let Some(kafka) = Kafka::start().await else { return };
    let endpoint = Endpoint::start(|_, _| Plan::status(422)).await;
    let placed = kafka.place("1").await;
    for (dead, code, words) in
        [("nobody.made.it", 1, "create `nobody.made.it`"), ("orders", 78, "come again")]
    {
        let more = ["--group", "billing", "--dead-letters", dead];
        let refused = Sidecar::start(kafka.command(&kafka.from(), &endpoint, &more)).ended().await;
        assert_eq!(refused.code, Some(code), "{}", refused.text);
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    // Whoever outlives its lease keeps it twice.
    let sidecar = kafka.sidecar(&endpoint, &["--lease", "30s"]).await;
    kafka.settled().await;
    sidecar.stop().await;
    let dead = kafka.dead().await;
    assert_eq!(dead.iter().map(Stored::id).collect::<Vec<_>>(), [placed.id]);
    assert!(dead[0].header("postrider-dead-reason").unwrap().contains("422"), "{dead:?}");
}

/// F36, R107: who we are stands in a configuration and never on the command line; servers that do not know us are
/// said to.
#[tokio::test]
async fn secrets_come_from_a_file() {
    let Some(kafka) = Kafka::bare(USERS).await else { return };
    let endpoint = Endpoint::willing().await;
    let open = kafka.from().replace("kafka://", &format!("kafka://joe:{PASSWORD}@"));
    let ended = Sidecar::start(kafka.command(&open, &endpoint, &["--group", "a"])).ended().await;
    assert_eq!(ended.code, Some(78), "{}", ended.text);
    let text = "user = \"joe\"\npassword = \"file:password\"\nmechanism = \"plain\"";
    std::fs::write(kafka.stage.path("postrider.toml"), kafka.configuration(text)).unwrap();
    for (password, words) in
        [("wrong", "correct the credentials"), (PASSWORD, "there is no topic `orders`")]
    {
        std::fs::write(kafka.stage.path("password"), password).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
        let ended = Sidecar::start(kafka.placed(command)).ended().await;
        assert_eq!(ended.code, Some(1), "{}", ended.text);
        assert!(ended.text.contains(words) && !ended.text.contains(PASSWORD), "{}", ended.text);
    }
}

/// F36: the servers' passwords are rotated under a sidecar, which goes on by a reload and not before.
#[tokio::test]
async fn credentials_follow_a_reload() {
    let Some(mut kafka) = Kafka::guarded().await else { return };
    let endpoint = Endpoint::willing().await;
    let text =
        format!("user = \"ann\"\npassword = \"file:password\"\nmechanism = \"plain\"\n{SESSION}");
    let text = kafka.lasting_configuration(&text);
    std::fs::write(kafka.stage.path("postrider.toml"), text).unwrap();
    std::fs::write(kafka.stage.path("password"), "older").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["consume", "--config", "postrider.toml", "--to", &endpoint.url()]);
    let mut sidecar = Sidecar::start(kafka.placed(command));
    sidecar.hear("receiving").await;
    kafka.place("1").await;
    endpoint.called(1).await;
    kafka.server.kill();
    let file = kafka.server.folder().join("server.properties");
    let rotated = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, rotated.replace("\"older\"", "\"newer\"")).unwrap();
    kafka = spawn_blocking(move || {
        kafka.server.run().unwrap();
        kafka
    })
    .await
    .unwrap();
    // Told with what to do about it, though all servers are away as well.
    sidecar.hear("correct the credentials").await;
    kafka.place("2").await;
    std::fs::write(kafka.stage.path("password"), "newer").unwrap();
    assert_eq!(endpoint.calls().len(), 1, "the other one waits");
    sidecar.signal(Signal::HUP);
    sidecar.hear("secrets: read anew").await;
    endpoint.called(2).await;
    kafka.settled().await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains("newer") && !ended.text.contains("older"), "{}", ended.text);
    assert_one_effect_each(&kafka.stage, &endpoint).await;
}

/// F36: another user takes over while calls are under way: they end as if nothing had happened, and each key stays in
/// order.
#[tokio::test]
async fn a_reload_loses_nothing_that_is_in_work() {
    let Some(kafka) = Kafka::guarded().await else { return };
    let endpoint = Endpoint::start(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let mut sidecar = kafka.sidecar_of_ann(&endpoint).await;
    for key in ["1", "2", "3", "4"] {
        kafka.place(key).await;
    }
    endpoint.called(4).await;
    kafka.configure("joe", PASSWORD);
    sidecar.signal(Signal::HUP);
    sidecar.hear("reloaded: consume.billing.kafka.user").await;
    for key in ["1", "2", "3", "4", "5"] {
        kafka.place(key).await;
    }
    endpoint.open();
    kafka.settled().await;
    let ended = sidecar.stop().await;
    assert!(!ended.text.contains(PASSWORD), "{}", ended.text);
    assert_one_effect_each(&kafka.stage, &endpoint).await;
    assert_eq!(endpoint.calls().len(), 9, "{}", ended.text);
    let verdict = judge(&kafka.stage, &endpoint.effects()).await;
    assert!(verdict.broken().is_empty() && verdict.judged(Invariant::KeyOrder) > 0, "{verdict}");
}

/// F36: the name that a server has, and tells its clients, leads elsewhere under a sidecar.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sidecar_follows_the_name_of_its_server() {
    let stage = Stage::new();
    let behind = free_ports(1).unwrap()[0];
    let Some(mut moving) = moving(&stage, behind).await else { return };
    let known_as = moving.address();
    let start = move || KafkaServer::known_as(behind, &known_as);
    let Some(kafka) = Kafka::with(stage, start).await else { return };
    kafka.topics().await;
    let own = kafka.server.address();
    acted_on_while_it_moves(&kafka, &mut moving, &own).await;
}
