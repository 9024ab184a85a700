//! Findings for `fanpcap doctor` on a machine of a capture cluster: what is wrong, why it matters,
//! and which command repairs it.

mod device;

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fanpcap_cluster::Topology;
use fanpcap_config::report::Report;
use fanpcap_linux::netlink::link;
use fanpcap_linux::{bpf, wait::clock};
use fanpcap_select::Key;
use fanpcap_terminal::streams;
use serde_json::{Value, json};

use super::selected;
use crate::conf::{Conf, Engine, Role};
use crate::{engine, pins};
use device::{Device, tag_taker};

/// How long doctor waits for a coordinator's reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the names of selections in the kernel begin.
const SELECTION: &str = "fanpcap_select";

/// The facts from which the findings follow.
#[derive(Debug, Default)]
struct Facts {
    /// The settings' file, as the command line names it.
    file: String,
    /// What is wrong with the settings, or with the files that the settings name.
    mistake: Option<Report>,
    devices: Vec<Device>,
    /// Devices that have a selection, but no agent.
    orphans: Vec<String>,
    /// Whether this machine's clock stamps packets for a cluster, but is not synchronized.
    is_adrift: bool,
    /// Why no coordinator is in reach; `None` if a coordinator replied.
    unled: Option<String>,
    /// If there is a topology, whether it has a filter; otherwise, whether the settings have one.
    has_filter: bool,
    node: Option<Node>,
}

/// A node's device, and how the node's cluster selects packets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    device: String,
    cluster: String,
    selects_by: Key,
}

/// A problem.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    /// `refuses`, `loses` or `distorts`, as in the other findings of doctor.
    effect: &'static str,
    place: String,
    what: String,
    why: &'static str,
    fix: String,
}

/// The findings on this machine, as one JSON object.
pub(crate) fn json(file: &Path) -> Result<Value> {
    let facts = Facts::read(file)?;
    let node = facts.node.as_ref().map(|it| {
        json!({
            "device": it.device,
            "cluster": it.cluster,
            "select": it.selects_by.name(),
            "gets": selected::gets(it.selects_by),
        })
    });
    let findings = facts.findings().into_iter();
    let value = |it: Finding| {
        json!({
            "name": it.name,
            "effect": it.effect,
            "place": it.place,
            "what": it.what,
            "why": it.why,
            "fix": it.fix,
        })
    };
    let findings: Vec<Value> = findings.map(value).collect();
    Ok(json!({ "findings": findings, "node": node }))
}

impl Facts {
    fn read(file: &Path) -> Result<Self> {
        let mut facts = Self {
            file: file.display().to_string(),
            orphans: orphans()?,
            ..Self::default()
        };
        if !file.exists() {
            return Ok(facts);
        }
        let conf = match Conf::load(file) {
            Ok(conf) => conf,
            Err(mistake) => {
                facts.mistake = Some(mistake);
                return Ok(facts);
            }
        };
        facts.is_adrift = !clock::is_synchronized();
        let devices: Result<Vec<Device>> = conf.devices.iter().map(|it| Device::read(it)).collect();
        facts.devices = devices?;
        let (cluster, by_file) = (conf.cluster.clone(), conf.selection.key);
        facts.has_filter = conf.filter.is_some();
        let mut selects_by = None;
        let checked = conf.check_files(Role::Node);
        match checked.and_then(|()| conf.filter().map(drop)) {
            Ok(()) => match leader(conf) {
                Ok(Some(topology)) => {
                    selects_by = Some(topology.selection.key);
                    facts.has_filter = topology.filter.is_some();
                }
                Ok(None) => {}
                Err(why) => facts.unled = Some(why),
            },
            Err(mistake) => facts.mistake = Some(mistake),
        }
        let with_agent = facts.devices.iter().filter(|it| it.has_agent);
        let names: Vec<&str> = with_agent.map(|it| it.name.as_str()).collect();
        facts.node = (!names.is_empty()).then(|| Node {
            device: names.join(", "),
            cluster,
            selects_by: selects_by.unwrap_or(by_file),
        });
        Ok(facts)
    }

    fn findings(&self) -> Vec<Finding> {
        let mut all = Vec::new();
        all.extend(self.mistake.as_ref().map(|it| mistake(it, &self.file)));
        all.extend(self.devices.iter().filter_map(Device::finding));
        let takers = self.devices.iter().flat_map(|it| &it.tag_takers);
        all.extend(takers.filter(|_| self.has_filter).map(|it| tag_taker(it)));
        all.extend(self.orphans.iter().map(|name| orphan(name)));
        all.extend(self.unled.as_ref().map(|why| {
            Finding {
            name: "no-coordinator",
            effect: "loses",
            place: self.file.clone(),
            what: why.clone(),
            why: "nodes capture as before, but no node gets the packets of a dead node, and a new \
                  node gets no packets",
            fix: "systemctl start fanpcap-coordinator    # on the machines that the settings name"
                .to_owned(),
        }
        }));
        all.extend(self.is_adrift.then(|| Finding {
            name: "clock-adrift",
            effect: "distorts",
            place: "this machine".to_owned(),
            what: "no time service keeps the clock in step with other machines' clocks".to_owned(),
            why: "time stamps order the packets of several nodes, and decide which are doubles",
            fix: "apt-get install chrony    # or start the installed time service".to_owned(),
        }));
        all
    }
}

/// The finding for a mistake in the settings, or in a file that the settings name.
fn mistake(report: &Report, file: &str) -> Finding {
    let place = report.place.as_ref();
    let at = place.map(|it| format!("{}:{}:{}", it.source, it.line, it.column));
    let hint = report.hint.as_ref().map(|hint| format!("; {hint}"));
    // A message about a file ends with the command that repairs the file.
    let named = report.message.split("; '").nth(1);
    let command = named.and_then(|rest| rest.strip_suffix('\''));
    let line = place.map(|it| format!("sed -i '{}s/^/# /' {}", it.line, it.source));
    let line = line.map(|line| format!("{line}    # comments the line out; or edit it"));
    let fix = command.map(str::to_owned).or(line);
    Finding {
        name: match report.slug {
            "cluster-file-bad" => "cluster-file",
            _ => "cluster-conf",
        },
        effect: "refuses",
        place: at.unwrap_or_else(|| file.to_owned()),
        what: format!("{}{}", report.message, hint.unwrap_or_default()),
        why: match report.slug {
            "cluster-filter-bad" => {
                "the coordinator does not start; with 'engine = fixed', nodes do not start"
            }
            _ => "node, coordinator and analyzer of the cluster do not start",
        },
        fix: fix.unwrap_or_else(|| format!("fanpcap cluster check --config {file}")),
    }
}

fn orphan(device: &str) -> Finding {
    Finding {
        name: "selection-without-agent",
        effect: "loses",
        place: device.to_owned(),
        what: "the device has a cluster's selection, but no 'fanpcap node' runs on it".to_owned(),
        why: "the selection drops other nodes' packets by an old topology: packets of buckets that \
              this node should take over are lost",
        fix: format!("systemctl start fanpcap-node    # or: fanpcap node {device} --detach"),
    }
}

/// The devices that have a selection, but no agent.
fn orphans() -> Result<Vec<String>> {
    let mut orphans = Vec::new();
    for link in link::links()? {
        let Some(xdp) = link.xdp else {
            continue;
        };
        let is_selection = bpf::program_name(xdp.program).is_ok_and(|it| it.starts_with(SELECTION));
        // If the lock can't be read, the device is not reported.
        if is_selection && matches!(pins::has_agent(link.index), Ok(false)) {
            orphans.push(link.name);
        }
    }
    Ok(orphans)
}

/// The leading coordinator's topology; `None` if there is no topology, or if the cluster has no
/// coordinator. An error is the reason why no coordinator is in reach.
fn leader(conf: Conf) -> Result<Option<Box<Topology>>, String> {
    if matches!(conf.engine, Engine::Fixed(_)) {
        return Ok(None);
    }
    let (to, answer) = channel();
    let look = move || {
        let status = engine::operator_side(&conf).and_then(|mut side| side.look());
        // This fails if the caller no longer waits.
        let _ = to.send(status.map(|it| {
            let topology = it.view.topology.map(|(_, topology)| topology);
            it.leader.map(|_| topology)
        }));
    };
    thread::spawn(look);
    match answer.recv_timeout(PATIENCE) {
        Ok(Ok(Some(topologys))) => Ok(topologys),
        Ok(Ok(None)) => Err("no coordinator leads the cluster".to_owned()),
        Ok(Err(error)) => Err(streams::words(&error)),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            let waited = PATIENCE.as_secs();
            Err(format!("no active coordinator replied within {waited} s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use fanpcap_testkit::Scratch;

    use super::*;

    /// The page of the manual that lists the findings.
    const PAGE: &str = include_str!("../../../../docs/doctor.md");

    fn found(facts: &Facts) -> Vec<(&'static str, &'static str, String)> {
        let all = facts.findings().into_iter();
        let all = all.map(|it| (it.name, it.effect, it.fix));
        all.collect()
    }

    fn only(facts: &Facts) -> (&'static str, &'static str, String) {
        let mut all = found(facts);
        assert_eq!(all.len(), 1, "{all:?}");
        let (name, effect, fix) = all.remove(0);
        let row = format!("\n| `{name}` | {effect} |");
        assert!(PAGE.contains(&row), "{row}");
        (name, effect, fix)
    }

    #[test]
    fn a_machine_that_has_nothing_to_do_with_clusters_has_no_findings() {
        let scratch = Scratch::new().unwrap();
        let facts = Facts::read(&scratch.file("absent")).unwrap();
        assert!(facts.mistake.is_none() && !facts.is_adrift);
        assert_eq!(found(&Facts::default()), []);
    }

    #[test]
    fn what_the_device_has_keeps_the_node_from_it() {
        let of = |is_there, has_address, leads_out| {
            let device = Device {
                name: "eth1".to_owned(),
                is_there,
                has_address,
                leads_out,
                silence: Some("has no link"),
                ..Device::default()
            };
            Facts {
                devices: vec![device],
                ..Facts::default()
            }
        };
        let (name, effect, fix) = only(&of(true, true, false));
        assert_eq!((name, effect), ("monitored-device", "refuses"));
        assert_eq!(fix, "ip address flush dev eth1");
        assert!(only(&of(true, true, true)).2.starts_with("ip link"));
        assert!(only(&of(false, false, false)).2.starts_with("ip link"));
        // A refused device is not also reported as silent. This device is silent, but not refused.
        let (name, effect, fix) = only(&of(true, false, false));
        assert_eq!((name, effect), ("silent-device", "loses"));
        assert!(fix.starts_with("ethtool eth1"), "{fix}");
        let mut down = of(true, false, false);
        down.devices[0].silence = Some("is down");
        assert_eq!(only(&down).2, "ip link set eth1 up");
        down.devices[0].silence = None;
        assert_eq!(found(&down), []);
    }

    #[test]
    fn each_fact_is_a_finding() {
        let orphan = Facts {
            orphans: vec!["mon".to_owned()],
            ..Facts::default()
        };
        let (name, _, fix) = only(&orphan);
        assert_eq!(name, "selection-without-agent");
        assert!(fix.ends_with("fanpcap node mon --detach"), "{fix}");
        let adrift = Facts {
            is_adrift: true,
            ..Facts::default()
        };
        assert_eq!(only(&adrift).0, "clock-adrift");
        let unled = Facts {
            unled: Some("none".to_owned()),
            ..Facts::default()
        };
        assert_eq!(only(&unled).0, "no-coordinator");
    }

    #[test]
    fn a_filter_needs_the_tags_in_the_frames() {
        let of = |has_filter| {
            let device = Device {
                name: "bond0".to_owned(),
                is_there: true,
                tag_takers: vec!["eth1".to_owned()],
                ..Device::default()
            };
            Facts {
                devices: vec![device],
                has_filter,
                ..Facts::default()
            }
        };
        let (name, effect, fix) = only(&of(true));
        assert_eq!((name, effect), ("filter-misses-tags", "loses"));
        assert_eq!(fix, "ethtool -K eth1 rxvlan off");
        assert_eq!(found(&of(false)), []);
    }

    #[test]
    fn mistakes_in_settings_and_files_have_their_commands() {
        let scratch = Scratch::new().unwrap();
        let [conf, key] = ["cluster.conf", "key"].map(|name| scratch.file(name));
        let shown = conf.display();
        let read = |text: &str| {
            fs::write(&conf, text).unwrap();
            let mut facts = Facts::read(&conf).unwrap();
            facts.is_adrift = false;
            facts.orphans.clear();
            only(&facts)
        };
        let (name, _, fix) = read("cluster = a\nengin = fixed\n");
        assert_eq!(name, "cluster-conf");
        assert!(
            fix.starts_with(&format!("sed -i '2s/^/# /' {shown}")),
            "{fix}"
        );
        fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let text = format!(
            "cluster = a\nkey_file = {}\ncoordinators = 192.0.2.1:7700\n",
            key.display()
        );
        let (name, _, fix) = read(&text);
        assert_eq!(name, "cluster-file");
        assert_eq!(fix, format!("chmod 600 {}", key.display()));
        let (name, _, fix) = read("cluster = a\nengine = fixed\nnodes = a1\nfilter = prot 80\n");
        assert_eq!(name, "cluster-conf");
        assert!(
            fix.starts_with(&format!("sed -i '4s/^/# /' {shown}")),
            "{fix}"
        );
    }

    #[test]
    fn a_cluster_without_a_coordinator_asks_for_none() {
        let text = "cluster = a\nengine = fixed\nnodes = a1\n";
        assert_eq!(leader(Conf::parse(text, "c").unwrap()), Ok(None));
        let etcd = "cluster = a\nengine = etcd\netcd = http://127.0.0.1:1\n";
        let why = leader(Conf::parse(etcd, "c").unwrap()).unwrap_err();
        assert!(!why.is_empty());
    }
}
