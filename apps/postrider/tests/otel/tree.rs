//! The dependencies: what is compiled with the feature, and without it.

use std::process::Command;

/// The packages that are compiled into one.
fn tree(package: &str, features: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none"])
        .args(["--package", package])
        .args(features)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8(output.stdout).unwrap()
}

/// Without the feature nothing of OpenTelemetry is compiled, neither into the program nor into the
/// library; with it, no gRPC, no second HTTP client, and no other TLS.
#[test]
fn opentelemetry_is_compiled_on_request_alone() {
    for package in ["postrider-cli", "postrider"] {
        let without = tree(package, &[]);
        assert!(!without.contains("opentelemetry") && !without.contains("postrider-otel"));
        let with = tree(package, &["--features", "otel"]);
        assert!(with.contains("opentelemetry v0.33") && with.contains("postrider-otel"));
        for unwanted in ["tonic v", "reqwest v", "aws-lc", "native-tls"] {
            assert!(!with.contains(unwanted), "{package}: {unwanted}");
        }
    }
    let library = tree("postrider", &["--features", "otel"]);
    assert!(!library.contains("opentelemetry_sdk"), "the SDK is the application's choice");
}
