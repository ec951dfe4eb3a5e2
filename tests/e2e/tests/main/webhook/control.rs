//! The negative controls: what the checker passes elsewhere must fail where a promise is broken.

use postrider_core::Invariant;

use crate::stage::number;
use crate::webhook::evidence::Witness;
use crate::webhook::town::Town;

/// Orders are placed and delivered; then the tamperer works on the lines of the partner's record.
async fn broken_by(tamper: impl FnOnce(&Town, &mut Vec<String>)) -> Vec<Invariant> {
    let town = Town::new();
    let mut witness = Witness::default();
    witness.hear(&town.produce(40, &["--rollback-every", "4"]).await);
    let partner = town.receiver(&[]).await;
    town.drain().await;
    partner.finish().await;
    witness.look(&town);
    let received = &town.stage.files.received;
    let text = std::fs::read_to_string(received).expect("the record");
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    tamper(&town, &mut lines);
    std::fs::write(received, lines.concat()).expect("the record");
    witness.judge(&town).1.broken()
}

/// The run itself is sound, so what the other controls find is their own doing.
#[tokio::test]
async fn an_untouched_record_is_sound() {
    assert_eq!(broken_by(|_, _| {}).await, []);
}

/// INV-1: a request that the partner never got is missed.
#[tokio::test]
async fn a_missing_request_is_seen() {
    let broken = broken_by(|_, lines| _ = lines.remove(7));
    assert_eq!(broken.await, [Invariant::NoLoss]);
}

/// INV-1: what came to another endpoint did not come to its own.
#[tokio::test]
async fn a_request_to_the_wrong_endpoint_is_seen() {
    let broken = broken_by(|_, lines| {
        let at = lines.iter().position(|line| line.contains("tenant-1")).expect("a line of it");
        lines[at] = lines[at].replace("tenant-1", "tenant-2");
    });
    assert_eq!(broken.await, [Invariant::NoLoss]);
}

/// INV-2: a request about an order that was never placed is seen.
#[tokio::test]
async fn a_ghost_is_seen() {
    let broken = broken_by(|town, _| {
        let shop = town.stage.shop();
        let first = "(select id from outbox where seq = (select min(seq) from outbox))";
        for statement in [
            format!("delete from orders where event_id = {first}"),
            "delete from outbox where seq = (select min(seq) from outbox)".to_owned(),
        ] {
            assert_eq!(shop.execute(&statement, ()).expect("the change"), 1);
        }
        assert_eq!(number(&shop, "select count(*) from outbox"), 29);
    });
    assert_eq!(broken.await, [Invariant::NoGhost]);
}

/// INV-3: two requests of one key in the wrong order are seen.
#[tokio::test]
async fn disorder_is_seen() {
    let broken = broken_by(|town, lines| {
        let records = town.records();
        let pairs = (0..records.len()).flat_map(|a| (a + 1..records.len()).map(move |b| (a, b)));
        let (a, b) = pairs
            .into_iter()
            .find(|(a, b)| records[*a].key == records[*b].key)
            .expect("two of a key");
        lines.swap(a, b);
    });
    assert_eq!(broken.await, [Invariant::KeyOrder]);
}

/// INV-1, INV-7: a partner who acknowledges before he records is killed: what he had only in memory is
/// lost, and the store's claim that he has it is false. The checker sees both. It is no fault of the
/// relay's: an acknowledgement is the partner's word.
#[tokio::test]
async fn a_partner_who_answers_before_he_records_is_found_out() {
    let town = Town::new();
    let mut witness = Witness::default();
    witness.hear(&town.produce(60, &[]).await);
    let partner = town.receiver(&["--careless", "50"]).await;
    town.drain().await;
    partner.kill().await;
    assert_eq!((town.position(), town.records().len()), (60, 50));
    let (history, verdict) = witness.judge(&town);
    assert_eq!(verdict.broken(), [Invariant::NoLoss, Invariant::Truth], "{verdict}");
    assert_eq!(history.ledger().lost, 10);
}
