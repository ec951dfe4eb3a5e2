//! Beside a publication, as of a replica or of change data capture.

use postrider_postgres::Layout;

use super::{Play, gone};

/// How many of the tables PostgreSQL would refuse to update or delete from beside a publication of all of them.
const UNNAMED: &str = "select count(*) from pg_class c
    where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'r' and c.relpersistence = 'p'
        and c.relreplident <> 'f'
        and not (c.relreplident = 'd' and exists (
            select from pg_index i where i.indrelid = c.oid and i.indisprimary))";

/// Each table can be published, those too that are made later on.
pub(super) async fn all_can_be_published(play: &Play) {
    assert_eq!(play.fresh.number(UNNAMED).await, 0, "{}", play.tables().await);
}

/// R022, R101: events are erased, repaired, and retired beside a publication.
#[tokio::test]
async fn a_publication_of_all_tables_is_in_nobodys_way() {
    for layout in [Layout::Plain, Layout::Partitioned] {
        let Some(play) = Play::new(layout).await else { return };
        let name = format!("p{}", play.fresh.names.schema());
        let client = play.fresh.connect().await;
        let publish = format!("create publication {name} for tables in schema {{schema}}");
        client.batch_execute(&play.fresh.sql(&publish)).await.expect("a publication");
        play.old_in_tables(13_000, "30 days").await;
        play.passed(13_000).await;
        let erase = "update {outbox} set payload = null, erased_at = now() where seq in (3, 12300)";
        let erased = client.batch_execute(&play.fresh.sql(erase)).await;
        let repair = "begin; set local postrider.repair = 'on';
            update {outbox} set partition = 0 where seq in (4, 12301); commit";
        let repaired = client.batch_execute(&play.fresh.sql(repair)).await;
        let deleted = play.fresh.sql("delete from {outbox} where seq = 12999");
        let deleted = client.batch_execute(&deleted).await;
        _ = client.batch_execute("rollback").await;
        let unpublish = format!("drop publication {name}");
        client.batch_execute(&unpublish).await.expect("dropped");
        erased.expect("erased");
        repaired.expect("repaired");
        deleted.expect("deleted");
        all_can_be_published(&play).await;
        assert_ne!(play.retire(1_000).await, gone(0, false), "{layout:?}");
    }
}
