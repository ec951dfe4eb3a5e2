//! A pooler of the test's own before a cluster: it keeps its clients' connections over a crash of the server.

use std::io::Write as _;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cluster::Cluster;

/// Where Debian has it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// pgbouncer, one server session per transaction.
pub(crate) struct Bouncer {
    process: Child,
    port: u16,
}

impl Bouncer {
    /// `None` with the reason printed where the program is not installed.
    pub(crate) fn start(cluster: &Cluster) -> Option<Bouncer> {
        if !Path::new(PROGRAM).exists() {
            eprintln!("skipped: {PROGRAM} is not installed");
            return None;
        }
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("its number").port();
        drop(free);
        let folder = cluster.folder();
        let (users, settings) = (folder.join("users"), folder.join("pgbouncer.ini"));
        std::fs::write(&users, "\"postgres\" \"\"\n").expect("the users");
        let mut file = std::fs::File::create(&settings).expect("the settings");
        write!(
            file,
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\nserver_login_retry = 1\nlogfile = {}\n",
            cluster.port(),
            users.display(),
            folder.join("pgbouncer.log").display(),
        )
        .expect("the settings");
        let mut command = Command::new(PROGRAM);
        command.arg(&settings).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = cluster.account() {
            for path in [&users, &settings] {
                chown(path, Some(user), Some(group)).expect("the files are given away");
            }
            command.uid(user).gid(group);
        }
        Some(Bouncer { process: command.spawn().expect("pgbouncer starts"), port })
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
