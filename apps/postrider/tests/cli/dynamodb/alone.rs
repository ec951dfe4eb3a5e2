//! An inbox that stands alone: its table, and no outbox beside it.

use postrider_dynamodb::{Connection, Settings};
use serde_json::json;

use super::Tables;
use crate::aws::Account;
use crate::{code, err, said};

/// Deletes some of the tables.
fn delete(tables: &Tables, which: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let settings: Settings = tables.url().parse().unwrap();
        let connection = Connection::new(settings).unwrap();
        let client = connection.tables().await;
        for name in which {
            let table = format!("{}{name}", tables.prefix);
            Box::pin(client.delete_table().table_name(table).send()).await.unwrap();
        }
    });
}

/// R097: what guards a redrive is the inbox, and no other table is asked for; without the inbox's nothing is moved.
#[test]
fn a_redrive_asks_for_the_table_of_the_inbox_alone() {
    let Some(tables) = Tables::new("a_redrive_asks_for_the_table_of_the_inbox_alone") else {
        return;
    };
    let Some(account) = Account::open() else { return };
    let (queue, dead) = (account.queue("orders"), account.queue("orders-dead"));
    account.serve(&queue, &dead);
    account.ask("SendMessage", &json!({"QueueUrl": dead, "MessageBody": "{}"}));
    let redrive = || {
        let from = ["queue", "redrive", "--from", "sqs://us-east-1/orders", "--yes"];
        let mut command = tables.shop.command(&[&from[..], &["--inbox", &tables.url()]].concat());
        command.env("AWS_ACCESS_KEY_ID", account.key()).env("AWS_SECRET_ACCESS_KEY", "x");
        command.env("AWS_ENDPOINT_URL", account.url()).output().unwrap()
    };
    delete(&tables, &["outbox", "store"]);
    let moved = redrive();
    assert_eq!(code(&moved), 0, "{}", err(&moved));
    assert!(said(&moved).contains("has no row"), "{}", err(&moved));
    assert_eq!(account.count(&dead), "0");
    account.ask("SendMessage", &json!({"QueueUrl": dead, "MessageBody": "{}"}));
    delete(&tables, &["inbox"]);
    let refused = redrive();
    assert_ne!(code(&refused), 0, "{}", err(&refused));
    assert!(said(&refused).contains("inbox"), "{}", err(&refused));
    assert_eq!(account.count(&dead), "1", "nothing was moved");
    for queue in [&queue, &dead] {
        account.ask("DeleteQueue", &json!({ "QueueUrl": queue }));
    }
}
