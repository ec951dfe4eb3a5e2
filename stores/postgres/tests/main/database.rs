//! A database of a test's own on the shared server: for what is about all of it, or stands under the default names.

use postrider_postgres::{Setup, init};
use uuid::Uuid;

use crate::support::{connect, url};

/// A database with the tables under their default names.
pub(crate) struct Database {
    server: String,
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Database {
    /// Makes one; `None` where there is no server, which was said.
    pub(crate) async fn new(setup: &Setup) -> Option<Database> {
        Some(Database::at(url()?, setup).await)
    }

    /// The same on another server.
    pub(crate) async fn at(server: String, setup: &Setup) -> Database {
        let name = format!("t{}", &Uuid::now_v7().simple().to_string()[4..]);
        let client = connect(&server).await;
        client.batch_execute(&format!("create database {name}")).await.expect("a database");
        let url = format!("{}/{name}", server.rsplit_once('/').expect("a path").0);
        init(&url, setup).await.expect("the tables");
        Database { server, name, url }
    }

    pub(crate) async fn run(&self, statements: &str) {
        let client = connect(&self.url).await;
        if let Err(error) = client.batch_execute(statements).await {
            panic!("{statements}: {error:?}");
        }
    }

    pub(crate) async fn number(&self, statement: &str) -> i64 {
        connect(&self.url).await.query_one(statement, &[]).await.expect("a row").get(0)
    }

    pub(crate) async fn drop(self) {
        let drop = format!("drop database {} with (force)", self.name);
        connect(&self.server).await.batch_execute(&drop).await.expect("dropped");
    }
}
