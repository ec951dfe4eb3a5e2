//! A PostgreSQL server of the benchmark's own, in a temporary folder, gone with this value.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_postgres::{Names, PostgresStore, Setup, init};
use postrider_testkit::services;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::{Result, progress};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, with fsync on.
pub(crate) struct Server {
    process: Child,
    folder: TempDir,
    port: u16,
    pub(crate) names: Names,
}

impl Server {
    /// Makes a cluster and starts it. As root, under the account for servers.
    pub(crate) fn start(runtime: &Runtime) -> Result<Server> {
        Server::start_with(runtime, &[])
    }

    /// The same with more settings.
    pub(crate) fn start_with(runtime: &Runtime, more: &[&str]) -> Result<Server> {
        let programs = services::postgres_programs()?;
        let account = services::account()?;
        let folder = tempfile::tempdir()?;
        if let Some((uid, gid)) = account {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            command.current_dir(folder.path()).stdin(Stdio::null());
            if let Some((uid, gid)) = account {
                command.uid(uid).gid(gid);
            }
            command
        };
        progress("starting a PostgreSQL server with fsync on");
        let data = folder.path().join("data");
        let made = command("initdb")
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()?;
        if !made.success() {
            return Err("initdb failed".into());
        }
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let log = fs::File::create(folder.path().join("log"))?;
        let process = command("postgres")
            .args(["-D".into(), data, "-p".into(), PathBuf::from(port.to_string())])
            .arg("-k")
            .arg(folder.path())
            .args(settings(more))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let server = Server { process, folder, port, names: Names::default() };
        runtime.block_on(server.answers())?;
        runtime.block_on(init(&server.url(), &Setup::default()))?;
        Ok(server)
    }

    async fn answers(&self) -> Result<()> {
        let start = Instant::now();
        while let Err(error) = tokio_postgres::connect(&self.url(), NoTls).await {
            if start.elapsed() > PATIENCE {
                return Err(format!("the server does not answer: {error}").into());
            }
            // waits: a server that starts says so to nobody
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// A place for another file of the same run.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> Result<PostgresStore> {
        Ok(PostgresStore::new(&self.url())?)
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        connect(&self.url()).await
    }

    /// A statement with the names of Postrider's tables in their places.
    pub(crate) fn sql(&self, statement: &str) -> String {
        self.names.render(statement)
    }

    /// Runs statements that answer nothing.
    pub(crate) fn batch(&self, runtime: &Runtime, statements: &str) -> Result<()> {
        runtime.block_on(async {
            self.connect().await?.batch_execute(statements).await?;
            Ok(())
        })
    }

    pub(crate) fn version(&self, runtime: &Runtime) -> Result<String> {
        runtime.block_on(async {
            let row = self.connect().await?.query_one("show server_version", &[]).await?;
            Ok(row.get(0))
        })
    }

    /// How far the log was written, in bytes.
    pub(crate) async fn log_position(&self) -> Result<u64> {
        let statement = include_str!("../../sql/postgres/log_position.sql");
        let row = self.connect().await?.query_one(statement, &[]).await?;
        Ok(row.get::<_, i64>(0).cast_unsigned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that is killed leaves nothing that anybody needs.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A connection, driven by the runtime it was made on.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn settings(more: &[&str]) -> impl Iterator<Item = String> {
    let usual = [
        "listen_addresses=127.0.0.1",
        "fsync=on",
        "shared_buffers=512MB",
        "max_wal_size=4GB",
        "max_connections=100",
        "max_prepared_transactions=10",
    ]
    .into_iter();
    usual.chain(more.iter().copied()).flat_map(|setting| ["-c".to_owned(), setting.to_owned()])
}
