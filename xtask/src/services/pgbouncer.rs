//! PgBouncer in front of `pg`, in transaction mode: a connection of the application is another
//! session from one transaction to the next. Whatever rests on a session must notice.

use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::postgres::{self, Postgres};
use super::{Service, daemon, package, port};

/// Remembered beside the server: what it stands in front of.
const BEHIND: &str = "behind";

/// See the module.
pub(crate) struct PgBouncer;

impl Service for PgBouncer {
    fn name(&self) -> &'static str {
        "pgbouncer"
    }

    fn purpose(&self) -> &'static str {
        "PgBouncer in transaction mode, in front of pg"
    }

    fn offset(&self) -> u16 {
        43
    }

    /// A server that moved leaves the pooler in front of nothing.
    fn is_current(&self, place: &Place) -> bool {
        let url = place.neighbour(Postgres.name()).url();
        url.is_some() && place.read(BEHIND) == url
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let program = package::program(place, "pgbouncer", "pgbouncer")?;
        let behind = super::raise(&place.neighbour(Postgres.name()), &Postgres)?;
        let port = port::choose(place, "sql", self.offset())?;
        let path = place.write("pgbouncer.ini", &configuration(&behind, port)?)?;
        daemon::start(place, Command::new(program).arg(path))?;
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        daemon::ready(place, Duration::from_secs(15), || {
            postgres::query(&url, "select 1").as_deref() == Some("1")
        })?;
        place.write(BEHIND, &behind)?;
        Ok(url)
    }

    fn stop(&self, place: &Place) -> Result<(), String> {
        // TERM is at once; INT would wait for transactions to end.
        daemon::stop(place, "TERM")
    }
}

/// Every database of the server is there under its own name. Idle connections end soon: a test wants
/// to drop its database.
fn configuration(behind: &str, port: u16) -> Result<String, String> {
    let server = Server::parse(behind).ok_or("the URL of pg is not one that is written here")?;
    let password = server.password.map(|word| format!(" password={word}")).unwrap_or_default();
    Ok(format!(
        "[databases]\n* = host={} port={} user={}{password}\n\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
         max_client_conn = 300\ndefault_pool_size = 20\nserver_idle_timeout = 5\n\
         ignore_startup_parameters = extra_float_digits\n",
        server.host, server.port, server.user
    ))
}

/// The parts of `postgres://user[:password]@host:port/database`.
struct Server<'url> {
    user: &'url str,
    password: Option<&'url str>,
    host: &'url str,
    port: u16,
}

impl<'url> Server<'url> {
    fn parse(url: &'url str) -> Option<Self> {
        let (user, rest) = url.strip_prefix("postgres://")?.split_once('@')?;
        let (user, password) =
            user.split_once(':').map_or((user, None), |(user, word)| (user, Some(word)));
        let (host, port) = rest.split('/').next()?.rsplit_once(':')?;
        Some(Self { user, password, host, port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_in_front_of_the_server_with_its_user() {
        let text = configuration("postgres://ann:secret@127.0.0.1:5432/postgres", 6000).unwrap();
        assert!(text.contains("* = host=127.0.0.1 port=5432 user=ann password=secret\n"), "{text}");
        assert!(text.contains("listen_port = 6000\n"), "{text}");
        let text = configuration("postgres://postgres@127.0.0.1:27032/postgres", 6000).unwrap();
        assert!(text.contains("port=27032 user=postgres\n"), "{text}");
        configuration("postgres:///here", 6000).unwrap_err();
    }
}
