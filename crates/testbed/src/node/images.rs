//! Images made on this machine from its static busybox, since none can be pulled.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{
    archive::{self, Entry},
    packages,
};
use crate::{
    error::{Error, Result, io_error},
    hash::sha256,
};

/// The image of sandboxes, named in containerd's settings.
pub(super) const PAUSE: &str = "dapple.local/pause:1";

/// Writes the archives of all images into the folder.
pub(super) fn make(dir: &Path) -> Result<Vec<PathBuf>> {
    let busybox = packages::busybox();
    let program = std::fs::read(&busybox).map_err(io_error("read", &busybox))?;
    let applets = applets(&busybox)?;
    // A sleep long enough for any cluster here; sandboxes are ended by SIGKILL.
    let pause = json!({"Entrypoint": ["/bin/busybox", "sleep", "2147483647"]});
    let mut written = vec![image(dir, PAUSE, "1", &program, &[], &pause)?];
    for version in ["1", "2"] {
        let name = format!("dapple.local/busybox:{version}");
        let config = json!({"Cmd": ["sh"], "Env": ["PATH=/bin", format!("VERSION={version}")]});
        written.push(image(dir, &name, version, &program, &applets, &config)?);
    }
    Ok(written)
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output().map_err(|source| Error::Spawn {
        program: busybox.display().to_string(),
        source,
        remedy: "apt-get install busybox-static",
    })?;
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.lines().filter(|name| *name != "busybox").map(|name| format!("bin/{name}")).collect())
}

/// Writes one image as an OCI layout in a tar archive; `version` in a file makes digests of tags differ.
fn image(dir: &Path, name: &str, version: &str, program: &[u8], links: &[String], config: &Value) -> Result<PathBuf> {
    let path = dir.join(format!("{}.tar", name.replace(['/', ':'], "-")));
    let failed = |source| Error::Io { what: "write", path: path.clone(), source };
    let version = format!("{version}\n");
    let mut entries = vec![
        ("bin/", Entry::Folder),
        ("bin/busybox", Entry::File { content: program, mode: 0o755 }),
        ("etc/", Entry::Folder),
        ("etc/passwd", Entry::File { content: b"root:x:0:0:root:/:/bin/sh\n", mode: 0o644 }),
        ("etc/version", Entry::File { content: version.as_bytes(), mode: 0o644 }),
        ("tmp/", Entry::Folder),
    ];
    entries.extend(links.iter().map(|link| (link.as_str(), Entry::Link("busybox"))));
    let mut layer = Vec::new();
    archive::write(&mut layer, entries).map_err(failed)?;

    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let config = config.to_string().into_bytes();
    let oci = |kind: &str| format!("application/vnd.oci.image.{kind}");
    let describe =
        |kind: &str, blob: &[u8]| json!({"mediaType": oci(kind), "digest": digest(blob), "size": blob.len()});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": oci("manifest.v1+json"),
        "config": describe("config.v1+json", &config), "layers": [describe("layer.v1.tar", &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = describe("manifest.v1+json", &manifest);
    entry["annotations"] = json!({"io.containerd.image.name": name});
    entry["platform"] = json!({"architecture": architecture, "os": "linux"});
    let index = json!({"schemaVersion": 2, "mediaType": oci("index.v1+json"), "manifests": [entry]}).to_string();

    let blobs = [&layer, &config, &manifest].map(|blob| (format!("blobs/sha256/{}", &digest(blob)[7..]), blob));
    let file = |content| Entry::File { content, mode: 0o644 };
    let mut entries =
        vec![("oci-layout", file(br#"{"imageLayoutVersion":"1.0.0"}"#)), ("index.json", file(index.as_bytes()))];
    entries.extend(blobs.iter().map(|(path, blob)| (path.as_str(), file(blob))));
    let mut out = std::io::BufWriter::new(std::fs::File::create(&path).map_err(failed)?);
    archive::write(&mut out, entries).and_then(|()| std::io::Write::flush(&mut out)).map_err(failed)?;
    Ok(path)
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", sha256(blob))
}
