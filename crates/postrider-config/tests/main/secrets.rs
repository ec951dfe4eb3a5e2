//! Secrets: read when asked for, said to be missing where they are referred to, shown nowhere.

use std::path::Path;

use postrider_config::{Environment, SECRET_BYTES_MAX, SecretRef};

use crate::{load, said};

const FILE: &str = r#"
[destinations.a]
kind = "webhook"
routes = [{ topic = "acme" }]
[destinations.a.endpoints.acme]
url = "env:HOOK"
keys = ["env:KEY", "file:PLACE"]
"#;

fn at(path: &Path) -> String {
    FILE.replace("PLACE", path.to_str().unwrap())
}

fn write(path: &Path, text: &[u8], mode: u32) {
    std::fs::write(path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    #[cfg(not(unix))]
    let _ = mode;
}

#[test]
fn secrets_are_read_from_variables_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write(&path, b"hunter2 \r\n", 0o600);
    let loaded = load(&at(&path));
    let variables = [("HOOK", "https://hooks.example/hunter2"), ("KEY", "hunter1")];
    let environment: Environment = variables.into_iter().collect();
    let (secrets, warnings) = loaded.resolve(&environment).unwrap();
    assert_eq!(warnings, []);
    let endpoint = &loaded.config.destinations.values().next().unwrap().endpoints["acme"];
    assert_eq!(secrets.address(&endpoint.url), Some("https://hooks.example/hunter2"));
    let keys = endpoint.keys.iter().map(|key| secrets.get(key).unwrap().expose());
    assert_eq!(keys.collect::<Vec<_>>(), ["hunter1", "hunter2 "]);
    let shown =
        format!("{secrets:?} {:?} {environment:?} {loaded:?}", secrets.get(&endpoint.keys[0]));
    assert!(!shown.contains("hunter"), "{shown}");
    let changed: Environment = [("HOOK", "x"), ("KEY", "hunter3")].into_iter().collect();
    assert_ne!(loaded.resolve(&changed).unwrap().0, secrets);
}

/// F31: what a reference lacks is said before anything connects, with its place.
#[test]
fn every_missing_secret_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = load(&at(&folder.path().join("missing")));
    let environment: Environment = [("KEY", "")].into_iter().collect();
    let said = said(&loaded.resolve(&environment).unwrap_err());
    for part in [
        "postrider.toml:6:7: `destinations.a.endpoints.acme.url`: the environment variable HOOK is \
         not set",
        "  6 | url = \"env:HOOK\"",
        "variable KEY is empty",
        "missing cannot be read",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn files_that_are_no_secrets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let refusal = |text: &[u8]| {
        write(&path, text, 0o600);
        SecretRef::File(path.clone()).resolve(&Environment::default()).map(|_| ())
    };
    let most = usize::try_from(SECRET_BYTES_MAX).unwrap();
    assert_eq!(refusal(&vec![b'x'; most]), Ok(()));
    for (text, why) in [
        (vec![b'x'; most + 1], "more than 65536 bytes"),
        (b"\n".to_vec(), "is empty"),
        (b"hunter2\xff".to_vec(), "not UTF-8"),
    ] {
        let said = refusal(&text).unwrap_err();
        assert!(said.contains(why) && !said.contains("hunter2"), "{said}");
    }
    let folder = SecretRef::File(folder.path().into()).resolve(&Environment::default());
    assert!(folder.unwrap_err().contains("not a regular file"));
}

#[cfg(unix)]
#[test]
fn files_that_others_can_read_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    write(&path, b"hunter2\n", 0o640);
    let environment: Environment = [("HOOK", "x"), ("KEY", "y")].into_iter().collect();
    let (_, warnings) = load(&at(&path)).resolve(&environment).unwrap();
    let said = said(&warnings);
    assert!(said.contains("can be read by others than its owner (mode 640)"), "{said}");
    assert!(said.starts_with("postrider.toml:7:8:"), "{said}");
}
