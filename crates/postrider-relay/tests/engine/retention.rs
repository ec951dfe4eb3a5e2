//! Retention: what is old and done goes, what waits or is not passed stays, and nothing goes that an
//! archive has not taken.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::{DestinationState, ErrorKind, EventId};
use postrider_relay::{Retention, Target};
use postrider_testkit::fault::{Gate, Operation, SourceAction};
use postrider_testkit::memory::MemoryArchive;

use crate::world::{World, event, everything, id};

const DAY: Duration = Duration::from_secs(86_400);

fn with_retention(world: &mut World) {
    world.settings.retention = Some(Retention { rows_max: 10, ..Retention::of(DAY * 7) });
}

/// Days pass in one leap, as for a machine that slept; then the relay has some minutes.
fn leap(world: &mut World, span: Duration) {
    world.clock.advance(span);
    world.run_for(Duration::from_secs(150));
}

fn kept(world: &World) -> BTreeSet<EventId> {
    let gone = world.store.retired();
    let rows = world.store.committed().into_iter().map(|row| row.row.id);
    rows.filter(|id| !gone.contains(id)).collect()
}

fn archived(archive: &MemoryArchive) -> BTreeSet<EventId> {
    archive.events().iter().map(|event| event.id).collect()
}

/// R117, R101: after thirty days what was delivered is gone, in pieces; a dead letter, its key, and
/// what a paused destination has not passed are there, and are delivered.
#[test]
fn what_waits_or_is_not_passed_outlives_its_retention() {
    let mut world = World::new(1, vec![everything("all"), everything("other")]);
    with_retention(&mut world);
    let poison = event(1, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison, event(1, 1), event(1, 2)]);
    world.commit((0..40).map(|n| event(10 + n % 4, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(10));
    world.store.set_state(&id("other"), DestinationState::Paused).unwrap();
    world.run_for(Duration::from_secs(10));
    world.commit((0..5).map(|n| event(20, n)).collect());
    leap(&mut world, DAY * 6);
    assert_eq!(kept(&world).len(), 48, "too young");
    leap(&mut world, DAY * 24);
    assert_eq!(kept(&world).len(), 8, "the dead letter's key, and what one has not passed");
    assert_eq!(world.healths()[0].retired, 40);
    world.store.set_state(&id("other"), DestinationState::Active).unwrap();
    leap(&mut world, DAY);
    assert_eq!(world.delivered("other"), 48);
    assert_eq!(kept(&world).len(), 3);
}

/// R102: an archive that fails keeps everything, is named, and gets it later.
#[test]
fn what_the_archive_does_not_take_is_kept() {
    let mut world = World::simple();
    with_retention(&mut world);
    let archive = MemoryArchive::new();
    archive.set_failing(true);
    world.archive = Some(archive.clone());
    world.commit((0..25).map(|n| event(n % 4, n)).collect());
    let all = kept(&world);
    world.start(Target::Forever);
    leap(&mut world, DAY * 8);
    assert_eq!(kept(&world), all);
    let health = world.healths().remove(0);
    assert!(health.blockers.iter().any(|b| b.to_string().contains("archive")), "{health:?}");
    archive.set_failing(false);
    world.run_for(Duration::from_secs(200));
    assert!(kept(&world).is_empty());
    assert_eq!((archived(&archive), archive.events().len()), (all, 25));
    assert!(world.healths()[0].blockers.is_empty(), "{:?}", world.healths());
}

/// R102: a relay that dies between archive and deletion has deleted nothing; the events come to the
/// archive again, and then go.
#[test]
fn a_crash_between_archive_and_deletion_keeps_the_rows() {
    let mut world = World::simple();
    with_retention(&mut world);
    let archive = MemoryArchive::new();
    world.archive = Some(archive.clone());
    world.commit((0..25).map(|n| event(n % 4, n)).collect());
    let all = kept(&world);
    world.start(Target::Forever);
    leap(&mut world, DAY * 6);
    world.source.script(Operation::Retire).then([SourceAction::Hold(Gate::new())]);
    world.clock.advance(DAY * 2);
    // Shorter than the shell waits for the store.
    world.run_for(Duration::from_secs(30));
    assert_eq!((archive.events().len(), kept(&world)), (10, all.clone()), "archived, not deleted");
    world.kill(0);
    world.start(Target::Forever);
    leap(&mut world, DAY);
    assert!(kept(&world).is_empty());
    assert_eq!(archived(&archive), all);
    assert_eq!(archive.events().len(), 35, "the first piece came twice");
}

/// A lost answer, and a store that refuses: nothing goes twice, and nothing is forgotten.
#[test]
fn a_lost_answer_retires_nothing_that_was_not_archived() {
    let mut world = World::simple();
    with_retention(&mut world);
    let archive = MemoryArchive::new();
    world.archive = Some(archive.clone());
    world.source.script(Operation::Retire).then([
        SourceAction::FailAfter(ErrorKind::Timeout),
        SourceAction::FailBefore(ErrorKind::Unavailable),
        SourceAction::busy(),
    ]);
    world.commit((0..25).map(|n| event(n % 4, n)).collect());
    let all = kept(&world);
    world.start(Target::Forever);
    leap(&mut world, DAY * 9);
    world.run_for(Duration::from_secs(200));
    assert!(kept(&world).is_empty());
    assert_eq!(archived(&archive), all);
}
