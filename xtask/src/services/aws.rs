//! SQS, SNS, and EventBridge, by LocalStack on the machine itself, without a container.
//!
//! Its open versions break with newer packages of others, so everything is installed as it was on
//! one day. It listens on all interfaces, whatever it is told.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::place::Place;
use super::{Service, daemon, package, port, probe};

/// The system's own: another one may stand where the servers' account cannot read it.
const PYTHON: &str = "/usr/bin/python3";
pub(super) const VERSION: &str = "4.12.0";
/// Packages newer than this are not looked at.
const DAY: &str = "2025-12-20";
/// What these three services need beside the base: a quarter of everything.
const PARTS: [&str; 8] = [
    "moto-ext",
    "jsonpath-ng",
    "antlr4-python3-runtime==4.13.2",
    "airspeed-ext",
    "jpype1",
    "crontab",
    "apispec",
    "jinja2",
];

/// See the module.
pub(crate) struct Aws;

impl Service for Aws {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn purpose(&self) -> &'static str {
        "SQS, SNS, and EventBridge, by LocalStack"
    }

    fn offset(&self) -> u16 {
        66
    }

    fn reusable(&self) -> Option<String> {
        serves(4566).then(|| url(4566))
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        let packages = install(place)?;
        let home = place.home()?;
        let port = port::choose(place, "client", self.offset())?;
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(PYTHON);
        command
            .args(["-m", "localstack.runtime.main"])
            .env("PYTHONPATH", packages)
            // It takes some machines for its own image, and looks for what only that has.
            .env("OVERRIDE_IN_DOCKER", "0")
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("FILESYSTEM_ROOT", home.join("files"))
            .env("GATEWAY_LISTEN", &address)
            .env("LOCALSTACK_HOST", &address)
            .env("SERVICES", "sqs,sns,events")
            .env("SKIP_SSL_CERT_DOWNLOAD", "1")
            .env("DISABLE_EVENTS", "1")
            .env("DNS_ADDRESS", "0");
        daemon::start(place, &command)?;
        daemon::ready(place, Duration::from_secs(120), || serves(port))?;
        Ok(url(port))
    }
}

/// The folder with all its packages.
fn install(place: &Place) -> Result<PathBuf, String> {
    if package::complete(Command::new(PYTHON).args(["-c", "import ensurepip"])).is_err() {
        package::system(place, &["python3", "python3-venv"])?;
    }
    let done = package::fetched(place, &format!("localstack-{VERSION}"), |draft| {
        place.say(format!("fetching LocalStack {VERSION}"));
        package::complete(package::client(PYTHON, draft).args(["-m", "venv", "uv"]))?;
        let pip = ["install", "--quiet", "--disable-pip-version-check", "uv"];
        package::complete(package::client(draft.join("uv/bin/pip"), draft).args(pip))?;
        let mut install = package::client(draft.join("uv/bin/uv"), draft);
        install.args(["pip", "install", "--quiet", "--compile-bytecode", "--python", PYTHON]);
        install.args(["--target", "packages", "--exclude-newer", DAY]);
        install.arg(format!("localstack-core[base-runtime]=={VERSION}")).args(PARTS);
        package::complete(&mut install)
    })?;
    Ok(done.join("packages"))
}

fn serves(port: u16) -> bool {
    probe::http(port, "GET", "/_localstack/health", "", "").contains("\"sqs\"")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
