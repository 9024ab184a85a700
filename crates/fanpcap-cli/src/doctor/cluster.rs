//! A capture cluster that this machine is in: what its own program says goes wrong.

use std::path::Path;

use anyhow::{Context, Result};
use fanpcap_config::report::harmless_text;
use fanpcap_linux::bpf;

use super::device;
use super::finding::{Finding, Page};
use crate::outside::Outside;

/// The settings of a cluster.
const CONF: &str = "/etc/fanpcap/cluster.conf";

/// What the names of selections in the kernel begin with.
const SELECTION: &str = "fanpcap_select";

/// The findings that the cluster's program may have.
pub(super) const NAMES: [&str; 6] = [
    "cluster-conf",
    "cluster-file",
    "monitored-device",
    "selection-without-agent",
    "no-coordinator",
    "clock-adrift",
];

/// What the cluster's program finds at this machine. It is not asked where there is neither
/// cluster.conf nor a selection, or where it is not installed.
///
/// # Errors
///
/// It can't be run, or prints something else.
pub(super) fn findings() -> Result<Vec<Finding>> {
    let Some(program) = Outside::of("cluster").filter(|it| it.is_installed()) else {
        return Ok(Vec::new());
    };
    if !Path::new(CONF).exists() && !has_selection() {
        return Ok(Vec::new());
    }
    let done = program.output(&["check", "--doctor", CONF])?;
    read(&done.stdout).with_context(|| {
        let complaint = String::from_utf8_lossy(&done.stderr);
        let complaint = harmless_text(complaint.trim());
        format!(
            "looking at the capture cluster: {}: {complaint}",
            done.status
        )
    })
}

/// Whether a device has a cluster's selection.
fn has_selection() -> bool {
    let links = device::links().unwrap_or_default();
    let programs = links.iter().filter_map(|link| link.xdp);
    let names = programs.filter_map(|xdp| bpf::program_name(xdp.program).ok());
    names.into_iter().any(|name| name.starts_with(SELECTION))
}

fn read(text: &[u8]) -> Result<Vec<Finding>> {
    let page: Page = serde_json::from_slice(text)?;
    let own = page.findings.into_iter().map(|told| {
        let name = harmless_text(&told.name);
        let finding = told.own(&NAMES);
        finding.with_context(|| format!("no finding has the name {name:?}"))
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        serde_json::json!({"findings": [
            {"name": name, "effect": "loses", "place": "eth1", "what": "a", "why": "b", "fix": "c"}
        ]})
        .to_string()
    }

    #[test]
    fn what_the_program_says_is_taken_by_name() {
        for name in NAMES {
            let found = read(page(name).as_bytes()).unwrap();
            assert_eq!((found.len(), found[0].name, &*found[0].fix), (1, name, "c"));
        }
        assert_eq!(read(b"{\"findings\":[]}").unwrap(), []);
    }

    #[test]
    fn what_is_none_of_its_findings_is_refused() {
        let error = read(page("down").as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "no finding has the name \"down\"");
        assert!(read(b"").is_err() && read(b"{}").is_err());
    }
}
