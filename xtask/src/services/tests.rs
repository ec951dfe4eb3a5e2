//! What holds for every kind of server.

use super::*;

#[test]
fn services_are_chosen_by_name_and_all_without_one() {
    assert_eq!(choose(&[]).unwrap().len(), SERVICES.len());
    let one = choose(&["pg".to_owned()]).unwrap();
    assert_eq!(one.iter().map(|service| service.name()).collect::<Vec<_>>(), ["pg"]);
    let reason = choose(&["postgres-9".to_owned()]).map(|_| ()).unwrap_err();
    assert!(reason.contains("postgres-9"), "{reason}");
}

#[test]
fn names_are_distinct_and_make_variables() {
    let text = usage();
    for service in SERVICES {
        let same = SERVICES.iter().filter(|other| other.name() == service.name()).count();
        assert_eq!(same, 1, "{}", service.name());
        assert!(service.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        assert!(text.contains(service.purpose()));
    }
    assert_eq!(variable("pg", "URL"), "POSTRIDER_PG_URL");
}

#[test]
fn the_port_is_found_in_every_kind_of_url() {
    assert_eq!(port_of("postgres://a:b@127.0.0.1:27032/c"), Some(27_032));
    assert_eq!(port_of("amqp://guest:guest@127.0.0.1:5672/%2f"), Some(5672));
    assert_eq!(port_of("127.0.0.1:9092"), Some(9092));
    assert_eq!(port_of("nats://127.0.0.1"), None);
}

#[test]
fn a_shell_reads_an_exported_value_back() {
    let line = export("A", "it's $HOME");
    let script = format!("{line}; printf %s \"$A\"");
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"it's $HOME");
}

/// A server that is a sleeping process; the test itself listens in its place.
struct Sleeper(u16);

impl Service for Sleeper {
    fn name(&self) -> &'static str {
        "sleeper"
    }

    fn purpose(&self) -> &'static str {
        "for this test"
    }

    /// It listens nowhere.
    fn offset(&self) -> u16 {
        0
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        daemon::start(place, std::process::Command::new("sleep").arg("60"))?;
        Ok(format!("sleep://{}:{}", place.running().unwrap().pid, self.0))
    }
}

#[test]
fn up_twice_at_the_same_time_and_after_a_kill_leaves_one_server() {
    let folder = Folder::temporary("twice");
    let place = folder.place("sleeper");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let sleeper = Sleeper(listener.local_addr().unwrap().port());
    let both: [&dyn Service; 2] = [&sleeper, &sleeper];
    let urls: Vec<String> = raise_all(&folder, &both).into_iter().map(Result::unwrap).collect();
    assert_eq!(urls[0], urls[1]);
    let first = place.running().unwrap();
    daemon::end(first, "KILL").unwrap();
    assert!(exported(&folder, &sleeper).is_empty(), "it is gone");
    let after = raise(&place, &sleeper).unwrap();
    assert_ne!(after, urls[0]);
    assert_eq!(exported(&folder, &sleeper), [("POSTRIDER_SLEEPER_URL".to_owned(), after)]);
    let second = place.running().unwrap();
    drop(listener);
    raise(&place, &sleeper).unwrap();
    assert!(!second.lives(), "it ran and did not answer");
    let second = place.running().unwrap();
    down(&folder, &[&sleeper]).unwrap();
    down(&folder, &[&sleeper]).unwrap();
    assert!(!second.lives() && exported(&folder, &sleeper).is_empty());
    std::fs::remove_dir_all(&folder.path).unwrap();
}

/// One that tests start themselves: all they need is what a run of it learns.
struct Lesson(Sleeper);

impl Service for Lesson {
    fn name(&self) -> &'static str {
        "lesson"
    }

    fn purpose(&self) -> &'static str {
        "for this test"
    }

    fn offset(&self) -> u16 {
        0
    }

    /// The run is left as one is that failed.
    fn preparation(&self) -> Option<Preparation> {
        Some(|place| {
            daemon::start(place, std::process::Command::new("sleep").arg("60"))?;
            place.write("learnt", &place.running().unwrap().to_string()).map(drop)
        })
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        self.0.start(place)
    }
}

#[test]
fn what_tests_start_themselves_is_prepared_and_does_not_stay_up() {
    let folder = Folder::temporary("prepared");
    let place = folder.place("lesson");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let lesson = Lesson(Sleeper(listener.local_addr().unwrap().port()));
    equip(&place, &lesson).unwrap();
    let learnt: identity::Identity = place.read("learnt").unwrap().parse().unwrap();
    assert!(!learnt.lives() && exported(&folder, &lesson).is_empty());
    // Who wants it up has it, and it stays.
    let url = raise(&place, &lesson).unwrap();
    equip(&place, &lesson).unwrap();
    assert!(place.running().is_some());
    assert_eq!(exported(&folder, &lesson), [("POSTRIDER_LESSON_URL".to_owned(), url.clone())]);
    down(&folder, &[&lesson]).unwrap();
    // One that is somebody else's is known on, though a run of ours was between.
    place.write("url", &url).unwrap();
    equip(&place, &lesson).unwrap();
    assert_eq!((place.running().is_none(), place.read("url")), (true, Some(url)));
    std::fs::remove_dir_all(&folder.path).unwrap();
}
