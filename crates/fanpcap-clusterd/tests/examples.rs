//! The examples of cluster.conf have no mistakes, and there is one example for each engine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_clusterd::conf::{Conf, Engine};

#[test]
fn each_engine_has_an_example_without_a_mistake() -> Result<()> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    for name in ["embedded", "etcd", "fixed", "tap"] {
        let path = examples.join(format!("cluster-{name}.conf"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let source = path.display().to_string();
        let conf = Conf::parse(&text, &source).map_err(|report| anyhow!("{report}"))?;
        let engine = match conf.engine {
            Engine::Embedded(_) => "embedded",
            Engine::Etcd(_) => "etcd",
            Engine::Fixed(_) => "fixed",
        };
        let wanted = if name == "tap" { "embedded" } else { name };
        ensure!(engine == wanted, "{name}: {engine}");
        let devices = conf.devices.len();
        let is_right = devices == if name == "tap" { 2 } else { 1 };
        ensure!(is_right, "{name}: it names {devices} devices");
    }
    Ok(())
}
