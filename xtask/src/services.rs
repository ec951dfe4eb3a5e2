//! `cargo x services`: real servers for the tests, on loopback, under an account without rights, in
//! a private folder.
//!
//! What it keeps: a server that was not started here is never stopped; a second `up` changes nothing;
//! runs at the same time, and runs that were killed, leave no two servers and no false record. A
//! server that cannot be had is a reason in words, and never a reason for the others to fail.

mod account;
mod aws;
mod daemon;
mod dynamodb;
mod folder;
mod identity;
mod kafka;
mod mariadb;
mod mqtt;
mod nats;
mod package;
mod pgbouncer;
mod place;
mod port;
mod postgres;
mod postgres_current;
mod probe;
mod rabbit;
mod redis;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use crate::suggestion;
use folder::Folder;
use place::Place;

/// What makes ready what tests start servers of their own with.
pub(crate) type Preparation = fn(&Place) -> Result<(), String>;

/// One kind of server.
pub(crate) trait Service: Sync {
    /// What it is called on the command line; its variables are `POSTRIDER_<NAME>_…`.
    fn name(&self) -> &'static str;

    /// What it is, for a person.
    fn purpose(&self) -> &'static str;

    /// Its port, counted from the first one of ours.
    fn offset(&self) -> u16;

    /// A server on the standard port that can do what the tests ask of one: its URL.
    fn reusable(&self) -> Option<String> {
        None
    }

    /// Whether the one that runs is still what it should be.
    fn is_current(&self, _place: &Place) -> bool {
        true
    }

    /// Installs, prepares, and starts one; its URL, once it answers.
    fn start(&self, place: &Place) -> Result<String, String>;

    /// Has ready what tests start servers of their own with, where none of them asks for one that is there already. It may
    /// start one for that, which is stopped then.
    fn preparation(&self) -> Option<Preparation> {
        None
    }

    /// Ends the one that was started here.
    fn stop(&self, place: &Place) -> Result<(), String> {
        daemon::stop(place, "TERM")
    }

    /// What tests may know beside the URL: the end of the variable's name, and its value.
    fn facts(&self, _place: &Place) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// All of them. One that stands on another comes after it.
const SERVICES: [&dyn Service; 11] = [
    &postgres::Postgres,
    &postgres_current::PostgresCurrent,
    &pgbouncer::PgBouncer,
    &nats::Nats,
    &kafka::Kafka,
    &mariadb::MariaDb,
    &redis::Redis,
    &rabbit::Rabbit,
    &mqtt::Mqtt,
    &dynamodb::DynamoDb,
    &aws::Aws,
];

const USAGE: &str = "usage: cargo x services up|down|status|env [name…]";

/// A variable for the tests, by name and value.
pub(crate) type Variable = (String, String);

/// The command.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let Some((command, names)) = arguments.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    let chosen = match choose(names) {
        Ok(chosen) => chosen,
        Err(reason) => {
            eprintln!("error: {reason}");
            return ExitCode::from(2);
        }
    };
    let act: fn(&Folder, &[&dyn Service]) -> Result<(), String> = match command.as_str() {
        "up" => up,
        "down" => down,
        "status" => status,
        "env" => env,
        unknown => {
            eprint!("error: there is no `services {unknown}`\n{}", usage());
            return ExitCode::from(2);
        }
    };
    match Folder::open().and_then(|folder| act(&folder, &chosen)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Brings up or prepares what the tests can use; the variables that they get, and a line for each server that
/// could not be had. A variable that is set already is somebody's choice, and stays.
pub(crate) fn provide(names: &[&str]) -> (Vec<Variable>, Vec<String>) {
    let wanted: Vec<_> = SERVICES
        .into_iter()
        .filter(|service| names.contains(&service.name()) && given(*service).is_none())
        .collect();
    let missing = |service: &dyn Service, reason: &str| {
        let reason = reason.lines().next().unwrap_or_default();
        format!("skipped: tests with {} ({}): {reason}", service.name(), service.purpose())
    };
    let folder = match Folder::open() {
        Ok(folder) => folder,
        Err(reason) => {
            return (Vec::new(), wanted.iter().map(|one| missing(*one, &reason)).collect());
        }
    };
    let (mut variables, mut skipped) = (shared(&folder), Vec::new());
    for (service, outcome) in wanted.iter().zip(at_once(&folder, &wanted, equip)) {
        match outcome {
            Ok(()) => variables.extend(exported(&folder, *service)),
            Err(reason) => skipped.push(missing(*service, &reason)),
        }
    }
    (variables, skipped)
}

/// Programs of Java that are no servers: the folder with the jars of these artifacts (`group:artifact:version`), beside the
/// compiler that makes something of them.
pub(crate) fn jars(name: &str, artifacts: &[&str]) -> Result<PathBuf, String> {
    let place = Folder::open()?.place(name);
    let _held = place.lock()?;
    package::program(&place, "javac", "default-jdk-headless")?;
    package::maven(&place, name, artifacts)
}

fn up(folder: &Folder, chosen: &[&dyn Service]) -> Result<(), String> {
    let mut failed = Vec::new();
    for (service, outcome) in chosen.iter().zip(raise_all(folder, chosen)) {
        match outcome {
            Ok(url) => println!("{:<10}{url}", service.name()),
            Err(_) => failed.push(service.name()),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not up: {}", failed.join(", "))) }
}

/// Sees to it that all of them run; their URLs.
fn raise_all(folder: &Folder, chosen: &[&dyn Service]) -> Vec<Result<String, String>> {
    at_once(folder, chosen, raise)
}

/// Sees to all of them at once: most of the time goes into waiting for downloads.
fn at_once<T: Send>(
    folder: &Folder,
    chosen: &[&dyn Service],
    act: fn(&Place, &dyn Service) -> Result<T, String>,
) -> Vec<Result<T, String>> {
    thread::scope(|scope| {
        let threads: Vec<_> = chosen
            .iter()
            .map(|service| scope.spawn(move || act(&folder.place(service.name()), *service)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a bug: see above".to_owned())))
            .collect()
    })
}

/// Sees to it that tests have what they need of a server: of most, one that runs.
fn equip(place: &Place, service: &dyn Service) -> Result<(), String> {
    let Some(prepare) = service.preparation() else {
        return raise(place, service).map(drop);
    };
    let _held = place.lock()?;
    // Whoever wants it up has it up still, and all was there before it was started.
    if place.running().is_some() && place.read("url").is_some_and(|url| answers(&url)) {
        return Ok(());
    }
    // One that is somebody else's was only looked up: it is known on, and says nothing of what is prepared.
    let others = place.read("url").filter(|url| place.running().is_none() && answers(url));
    service.stop(place)?;
    let prepared = prepare(place).inspect_err(|reason| place.say(format!("FAILED: {reason}")));
    // What a try left that failed.
    let stopped = service.stop(place);
    if let Some(url) = others {
        place.write("url", &url)?;
    }
    prepared.and(stopped)
}

/// Sees to it that one server runs; its URL.
fn raise(place: &Place, service: &dyn Service) -> Result<String, String> {
    let _held = place.lock()?;
    if let (Some(_), Some(url)) = (place.running(), place.read("url"))
        && answers(&url)
        && service.is_current(place)
    {
        place.say(format!("is up already: {url}"));
        return Ok(url);
    }
    // A process without a URL is what a killed run left: it may be anything between two states.
    service.stop(place)?;
    let refused = std::env::var("POSTRIDER_SERVICES_REUSE").is_ok_and(|word| word == "no");
    let reused = if refused { None } else { service.reusable() };
    let outcome = match &reused {
        Some(url) => Ok(url.clone()),
        None => service.start(place),
    };
    match outcome.and_then(|url| place.write("url", &url).map(|_| url)) {
        Ok(url) => {
            let how = if reused.is_some() { "uses the one that is there" } else { "is up" };
            place.say(format!("{how}: {url}"));
            Ok(url)
        }
        Err(reason) => {
            place.say(format!("FAILED: {reason}"));
            if let Err(more) = service.stop(place) {
                place.say(format!("and what was started of it stays: {more}"));
            }
            Err(reason)
        }
    }
}

/// Whether somebody listens at the URL: a process may be dying, or hang.
fn answers(url: &str) -> bool {
    port_of(url).is_some_and(probe::answers)
}

/// The port in `scheme://user@host:port/rest`, or in a bare `host:port`.
fn port_of(url: &str) -> Option<u16> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next()?.rsplit_once(':')?.1.parse().ok()
}

fn down(folder: &Folder, chosen: &[&dyn Service]) -> Result<(), String> {
    let mut failed = Vec::new();
    for service in chosen.iter().rev() {
        let place = folder.place(service.name());
        let _held = place.lock()?;
        let ran = place.running().is_some();
        match service.stop(&place) {
            Ok(()) if ran => place.say("stopped"),
            Ok(()) => {}
            Err(reason) => failed.push(format!("{}: {reason}", service.name())),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the commands")]
fn status(folder: &Folder, chosen: &[&dyn Service]) -> Result<(), String> {
    for service in chosen {
        let place = folder.place(service.name());
        let state = match (place.running(), place.read("url")) {
            (Some(identity), Some(url)) => format!("up        {url}  process {}", identity.pid),
            (Some(_), None) => "starting".to_owned(),
            (None, Some(url)) if place.read("pid").is_none() => format!("foreign   {url}"),
            (None, Some(_)) => "gone      it was up, and its process is no more".to_owned(),
            (None, None) => format!("down      {}", service.purpose()),
        };
        println!("{:<10}{state}", service.name());
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "one of the commands")]
fn env(folder: &Folder, chosen: &[&dyn Service]) -> Result<(), String> {
    let variables = chosen.iter().flat_map(|service| exported(folder, *service));
    for (name, value) in variables.chain(shared(folder)) {
        println!("{}", export(&name, &value));
    }
    Ok(())
}

/// A line that a shell reads back as the same value.
fn export(name: &str, value: &str) -> String {
    format!("export {name}='{}'", value.replace('\'', r"'\''"))
}

/// The variables of one server that runs, or is reused.
fn exported(folder: &Folder, service: &dyn Service) -> Vec<Variable> {
    let place = folder.place(service.name());
    let Some(url) = place.url() else {
        return Vec::new();
    };
    let mut variables = vec![(variable(service.name(), "URL"), url)];
    for (end, value) in service.facts(&place) {
        variables.push((variable(service.name(), end), value));
    }
    variables
}

/// What tests need to start servers of their own as ours are started.
fn shared(folder: &Folder) -> Vec<Variable> {
    let account = format!("{}:{}", folder.account.uid, folder.account.gid);
    vec![
        ("POSTRIDER_SERVICES_DIR".to_owned(), folder.path.display().to_string()),
        ("POSTRIDER_SERVICES_ACCOUNT".to_owned(), account),
    ]
}

fn variable(name: &str, end: &str) -> String {
    format!("POSTRIDER_{}_{end}", name.to_uppercase())
}

/// The URL that somebody set.
fn given(service: &dyn Service) -> Option<String> {
    std::env::var(variable(service.name(), "URL")).ok().filter(|url| !url.is_empty())
}

/// The services of these names, in the order of the list; all of them without a name.
fn choose(names: &[String]) -> Result<Vec<&'static dyn Service>, String> {
    let known: Vec<&str> = SERVICES.iter().map(|service| service.name()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let hint = suggestion::nearest(unknown, &known).map_or_else(
            || format!("; known: {}", known.join(", ")),
            |near| format!("; did you mean `{near}`?"),
        );
        return Err(format!("there is no service `{unknown}`{hint}"));
    }
    let wanted = |service: &&dyn Service| {
        names.is_empty() || names.iter().any(|name| name == service.name())
    };
    Ok(SERVICES.into_iter().filter(wanted).collect())
}

fn usage() -> String {
    let mut text = format!("{USAGE}\n\n");
    for service in SERVICES {
        text.push_str(&format!("  {:<12}{}\n", service.name(), service.purpose()));
    }
    text
}

#[cfg(test)]
mod compose;
#[cfg(test)]
mod tests;
