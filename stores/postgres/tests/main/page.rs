//! The reference page: every example on it does what the page says, in each language whose runtime is here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use postrider_postgres::Setup;
use tokio::process::Command;

use crate::database::Database;
use crate::support::connect;

/// What is fetched the first time is kept in the target folder.
const PATIENCE: Duration = Duration::from_secs(180);

/// A database of its own, with the page's `orders`.
async fn shop() -> Option<Database> {
    let database = Database::new(&Setup::default()).await?;
    database.run("create table orders (id bigint primary key, total integer)").await;
    Some(database)
}

/// The page's examples in a language, in order.
fn examples(language: &str) -> Vec<&'static str> {
    let page = include_str!("../../../../docs/reference/postgres.md");
    let begin = format!("```{language}\n");
    let found: Vec<_> = page
        .split(&begin)
        .skip(1)
        .map(|rest| rest.split_once("```").expect("the end of an example").0)
        .collect();
    assert!(!found.is_empty(), "{language}");
    found
}

fn folder(language: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("languages").join(language);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs a program in a folder; its output, if it ended well.
async fn run(folder: &Path, database: &Database, program: &str, arguments: &[&str]) -> Option<()> {
    let jdbc = database.url.split_once('@').expect("a host").1;
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("DATABASE_URL", &database.url)
        .env("JDBC_URL", format!("jdbc:postgresql://{jdbc}?user=postgres"))
        .kill_on_drop(true)
        .output();
    let ended = tokio::time::timeout(PATIENCE, output).await;
    let said = match &ended {
        Ok(Ok(output)) if output.status.success() => return Some(()),
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not done after {} s", PATIENCE.as_secs()),
    };
    eprintln!("{program} {}: {said}", arguments.join(" "));
    None
}

/// Whether what the example needs is there, or could be fetched.
fn ready(found: Option<()>, language: &str) -> bool {
    if found.is_none() {
        eprintln!("skipped: no {language} here, or its driver could not be fetched");
    }
    found.is_some()
}

async fn orders_with_events(database: &Database, order: i64) -> i64 {
    let statement = format!(
        "select count(*) from orders o join postrider.outbox on aggregate_id = o.id::text where o.id = {order}"
    );
    database.number(&statement).await
}

/// R003: the statements of the page, and the roles, run as they stand.
#[tokio::test]
async fn the_statements_of_the_page_run() {
    let Some(database) = shop().await else { return };
    for statements in examples("sql") {
        // Roles are the cluster's: under a name of the test's own.
        let own = statements.replace("shop_producer", &format!("p{}", database.name));
        database.run(&own).await;
    }
    for order in [42, 43, 44] {
        assert_eq!(orders_with_events(&database, order).await, 1, "{order}");
    }
    assert_eq!(database.number("select count(*) from postrider.outbox_scheduled").await, 1);
    a_producer_inserts_and_no_more(&database).await;
    let own = format!("drop owned by p{0}; drop role p{0}", database.name);
    database.run(&own).await;
    database.drop().await;
}

/// What the page grants suffices for every way to enqueue, and allows nothing else.
async fn a_producer_inserts_and_no_more(database: &Database) {
    let client = connect(&database.url).await;
    client.batch_execute(&format!("set role p{}", database.name)).await.unwrap();
    let allowed = [
        "insert into postrider.outbox (aggregate_type, aggregate_id, event_type, payload, headers) \
         values ('order', '1', 't', '{}', '{\"a\": \"b\"}')",
        "insert into postrider.outbox_scheduled (aggregate_type, aggregate_id, event_type, payload, due_at) \
         values ('order', '1', 't', '{}', now())",
        "select postrider.enqueue('order', '1', 't', '{}', serialize => true)",
        "select postrider.enqueue('order', '1', 't', '{}', due_at => now())",
    ];
    for statement in allowed {
        client.batch_execute(statement).await.expect(statement);
    }
    let mut client = client;
    let tx = client.transaction().await.unwrap();
    let event = postrider_core::NewEvent::new("order", "1", "t");
    let later = event.clone().deliver_after(postrider_core::Timestamp::now());
    let outbox = postrider_postgres::Outbox::new();
    outbox.enqueue(&tx, &event).await.expect("one");
    outbox.enqueue_many(&tx, [&event, &later]).await.expect("many");
    tx.commit().await.unwrap();
    let row = "aggregate_type, aggregate_id, event_type, payload) values (";
    let refused = [
        format!("insert into postrider.outbox (xid, {row} 1, 'o', '1', 't', '{{}}')"),
        format!("insert into postrider.outbox (seq, {row} 1, 'o', '1', 't', '{{}}')"),
        format!("insert into postrider.outbox (created_at, {row} now(), 'o', '1', 't', '{{}}')"),
        format!("insert into postrider.outbox_default (seq, {row} 1, 'o', '1', 't', '{{}}')"),
        "select count(*) from postrider.outbox".to_owned(),
        "update postrider.outbox set payload = null, erased_at = now()".to_owned(),
        "delete from postrider.outbox".to_owned(),
        "truncate postrider.outbox".to_owned(),
        "select setval('postrider.outbox_seq', 1)".to_owned(),
        "select * from postrider.outbox_cursor".to_owned(),
        "update postrider.outbox_lease set token = 0".to_owned(),
    ];
    for statement in refused {
        let error = client.batch_execute(&statement).await.expect_err(&statement);
        let told = error.as_db_error().expect("the server's");
        assert_eq!(told.code().code(), "42501", "{statement}: {told}");
    }
}

/// R003: Python writes events, and hears which rule a row broke.
#[tokio::test]
async fn the_examples_in_python_run() {
    let Some(database) = shop().await else { return };
    let folder = folder("python");
    let fetched = if folder.join("psycopg").exists() {
        Some(())
    } else {
        let install = ["-m", "pip", "install", "-q", "--target", ".", "psycopg[binary]"];
        run(&folder, &database, "python3", &install).await
    };
    if ready(fetched, "Python") {
        for (number, example) in examples("python").into_iter().enumerate() {
            let file = format!("example{number}.py");
            std::fs::write(folder.join(&file), example).unwrap();
            run(&folder, &database, "python3", &[&file]).await.expect("it runs");
        }
        assert_eq!(orders_with_events(&database, 45).await, 1);
    }
    database.drop().await;
}

/// R003: TypeScript (as JavaScript: the example needs no types) writes events.
#[tokio::test]
async fn the_examples_in_typescript_run() {
    let Some(database) = shop().await else { return };
    let folder = folder("typescript");
    let fetched = if folder.join("node_modules/pg").exists() {
        Some(())
    } else {
        let install = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", ".", "pg"];
        run(&folder, &database, "npm", &install).await
    };
    if ready(fetched, "Node") {
        for example in examples("typescript") {
            std::fs::write(folder.join("example.mjs"), example).unwrap();
            run(&folder, &database, "node", &["example.mjs"]).await.expect("it runs");
        }
        assert_eq!(orders_with_events(&database, 46).await, 1);
    }
    database.drop().await;
}

/// R003: Java writes events.
#[tokio::test]
async fn the_examples_in_java_run() {
    let Some(database) = shop().await else { return };
    let folder = folder("java");
    let jar = "postgresql-42.7.8.jar";
    let fetched = if folder.join(jar).exists() {
        Some(())
    } else {
        let artifact = "-Dartifact=org.postgresql:postgresql:42.7.8";
        let copy = ["-q", "-B", "dependency:copy", artifact, "-DoutputDirectory=."];
        run(&folder, &database, "mvn", &copy).await
    };
    if ready(fetched, "Java") {
        for example in examples("java") {
            std::fs::write(folder.join("Shop.java"), example).unwrap();
            let arguments = ["-cp", jar, "Shop.java"];
            run(&folder, &database, "java", &arguments).await.expect("it runs");
        }
        assert_eq!(orders_with_events(&database, 47).await, 1);
    }
    database.drop().await;
}

/// R003: Go writes events.
#[tokio::test]
async fn the_examples_in_go_run() {
    let Some(database) = shop().await else { return };
    let folder = folder("go");
    let example = examples("go")[0];
    std::fs::write(folder.join("main.go"), example).unwrap();
    let fetched = if folder.join("go.sum").exists() {
        Some(())
    } else {
        std::fs::write(folder.join("go.mod"), "module shop\n\ngo 1.24\n").unwrap();
        run(&folder, &database, "go", &["get", "github.com/jackc/pgx/v5@v5.7.6"]).await
    };
    if ready(fetched, "Go") {
        run(&folder, &database, "go", &["run", "."]).await.expect("it runs");
        assert_eq!(orders_with_events(&database, 48).await, 1);
    }
    database.drop().await;
}
