//! `deploy/compose.yaml` against the list of servers: who has Docker gets the same set, at the same ports, with the
//! settings that the tests rest on.
//!
//! The file is read by its indentation, as it is written: a parser of YAML would be compiled by every contributor before
//! anything else.

use std::collections::BTreeMap;

use super::{
    SERVICES, Service, aws, kafka, mariadb, port, port_of, postgres, postgres_current, variable,
};
use crate::tree;

/// What a server of ours has and an image need not: where it keeps what it has, where it listens, and what is chosen
/// for the speed of a shared machine alone.
const OURS: [&str; 12] = [
    "listen_addresses",
    "unix_socket_directories",
    "bind-address",
    "skip-name-resolve",
    "innodb-flush-log-at-trx-commit",
    "sync-binlog",
    "innodb-buffer-pool-size",
    "performance-schema",
    "max-connections",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
    "listener.security.protocol.map",
];

/// One server of the file, as far as it is compared.
#[derive(Debug, Default)]
struct Offer {
    image: String,
    /// The port on the host.
    port: Option<u16>,
    /// Everything that is written below its name, and below what that refers to.
    text: String,
}

/// What the file offers, and the variables that its beginning tells people to set.
#[derive(Debug, Default)]
struct Compose {
    offers: BTreeMap<String, Offer>,
    urls: BTreeMap<String, String>,
}

impl Compose {
    fn read(text: &str) -> Compose {
        let mut compose = Compose::default();
        let mut shared: BTreeMap<String, String> = BTreeMap::new();
        let (mut section, mut name) = (String::new(), String::new());
        for line in text.lines() {
            if let Some((variable, value)) =
                line.strip_prefix("#   export ").and_then(|rest| rest.split_once('='))
            {
                compose.urls.insert(variable.to_owned(), value.trim_matches('\'').to_owned());
            }
            let bare = line.trim();
            if bare.is_empty() || bare.starts_with('#') {
                continue;
            }
            match line.len() - line.trim_start().len() {
                0 => {
                    section = bare.to_owned();
                    name = section.split_once('&').map_or("", |(_, anchor)| anchor).to_owned();
                }
                2 if section == "services:" => name = bare.trim_end_matches(':').to_owned(),
                _ if section == "services:" => {
                    let offer = compose.offers.entry(name.clone()).or_default();
                    if let Some(anchor) = bare.strip_prefix("<<: *") {
                        offer.text.push_str(shared.get(anchor).map_or("", String::as_str));
                    }
                    if let Some(image) = bare.strip_prefix("image: ") {
                        offer.image = image.to_owned();
                    }
                    if let Some(ports) = bare.strip_prefix("ports: [\"127.0.0.1:") {
                        offer.port = ports.split(':').next().and_then(|port| port.parse().ok());
                    }
                    offer.text.push_str(bare);
                    offer.text.push('\n');
                }
                _ => {
                    let text = shared.entry(name.clone()).or_default();
                    text.push_str(bare);
                    text.push('\n');
                }
            }
        }
        compose
    }

    /// Where it is not what the list says, a line each.
    fn differences(&self) -> Vec<String> {
        let known: Vec<&str> = SERVICES.iter().map(|service| service.name()).collect();
        let unknown = self.offers.keys().filter(|name| !known.contains(&name.as_str()));
        let mut found: Vec<String> =
            unknown.map(|name| format!("`{name}` is in the file alone")).collect();
        for service in SERVICES {
            match self.offers.get(service.name()) {
                Some(offer) => found.extend(self.compare(service, offer)),
                None => found.push(format!("`{}` is not in the file", service.name())),
            }
        }
        found
    }

    fn compare(&self, service: &dyn Service, offer: &Offer) -> Vec<String> {
        let (name, mut found) = (service.name(), Vec::new());
        let wanted = port::BASE + service.offset();
        if offer.port != Some(wanted) {
            found.push(format!("{name}: the port on loopback is {wanted}, not {:?}", offer.port));
        }
        let variable = variable(name, "URL");
        let url = self.urls.get(&variable).map(String::as_str).unwrap_or_default();
        if port_of(url) != Some(wanted) {
            found.push(format!("{name}: {variable} should lead to port {wanted}, not to `{url}`"));
        }
        let tag = offer.image.rsplit_once(':').map(|(_, tag)| tag).unwrap_or_default();
        if let Some(version) = version(name)
            && tag != version
        {
            found.push(format!("{name}: version {version} is started, and the image has `{tag}`"));
        }
        for line in lines(name) {
            if !offer.text.lines().any(|text| text == line) {
                found.push(format!("{name}: `{line}` is missing"));
            }
        }
        found
    }
}

/// The version that `cargo x services` starts, where it is pinned and the image counts as we do. Of the system's
/// packages the majors are whatever the system has; DynamoDB Local's package has numbers of its own.
fn version(name: &str) -> Option<&'static str> {
    match name {
        "kafka" => Some(kafka::VERSION),
        "aws" => Some(aws::VERSION),
        "pg18" => postgres_current::VERSION.split('.').next(),
        _ => None,
    }
}

/// The settings that tests rest on, as the file writes them.
fn lines(name: &str) -> Vec<String> {
    let is_ours = |setting: &str| {
        let key = setting.trim_start_matches('-').split('=').next().unwrap_or_default();
        OURS.contains(&key)
    };
    match name {
        "pg" | "pg18" => {
            let settings = postgres::SETTINGS.iter().filter(|setting| !is_ours(setting));
            settings.map(|setting| format!("- -c{setting}")).collect()
        }
        "mariadb" => {
            let options = mariadb::OPTIONS.iter().filter(|option| !is_ours(option));
            options.map(|option| format!("- {option}")).collect()
        }
        "kafka" => {
            let properties = kafka::PROPERTIES.lines().filter(|property| !is_ours(property));
            properties.filter_map(|property| property.split_once('=')).map(environment).collect()
        }
        _ => Vec::new(),
    }
}

/// A property of Kafka's as its image reads it from the environment.
fn environment((key, value): (&str, &str)) -> String {
    let is_text = value.parse::<u64>().is_err() && value.parse::<bool>().is_err();
    let value = if is_text { value.to_owned() } else { format!("\"{value}\"") };
    format!("KAFKA_{}: {value}", key.replace('.', "_").to_uppercase())
}

fn file() -> String {
    std::fs::read_to_string(tree::root().join("deploy/compose.yaml")).unwrap()
}

#[test]
fn docker_offers_the_same_servers_at_the_same_ports_with_the_settings_that_tests_rest_on() {
    let found = Compose::read(&file()).differences();
    assert!(found.is_empty(), "deploy/compose.yaml:\n{}", found.join("\n"));
}

#[test]
fn each_way_to_differ_is_found() {
    let good = file();
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "the sample has no `{from}` any more");
        Compose::read(&good.replacen(from, to, 1)).differences()
    };
    for (from, to, expected) in [
        ("  redis:\n", "  valkey:\n", "`redis` is not in the file"),
        ("  redis:\n", "  valkey:\n", "`valkey` is in the file alone"),
        ("127.0.0.1:27079:6379", "127.0.0.1:6379:6379", "redis: the port on loopback is 27079"),
        ("[\"127.0.0.1:27079:6379", "[\"27079:6379", "redis: the port on loopback is 27079"),
        ("redis://127.0.0.1:27079", "redis://127.0.0.1:6379", "POSTRIDER_REDIS_URL should lead"),
        ("apache/kafka:4.2.0", "apache/kafka:4.1.0", "kafka: version 4.2.0 is started"),
        ("image: postgres:18", "image: postgres:17", "pg18: version 18 is started"),
        ("    - -cwal_level=logical\n", "", "pg18: `- -cwal_level=logical` is missing"),
        ("TOPICS_ENABLE: \"false\"", "TOPICS_ENABLE: \"true\"", "AUTO_CREATE_TOPICS_ENABLE"),
        ("      - --binlog-format=ROW\n", "", "mariadb: `- --binlog-format=ROW` is missing"),
    ] {
        let found = changed(from, to);
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:?}");
    }
}
