//! Checks the files in packaging/examples. The application for which a file is made must accept the
//! file, and the commands in the files must run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_loading::{is_judged, on_system, run, skip};
use fanpcap_testkit::{Injector, Program, Scratch, Veth, library, member, netns, traffic};
use serde_json::Value;

const FRAMES: u64 = 400;
const UNIT: &str = "fanpcap-capture@.service";
const DEVICES: [(&str, &str); 2] = [("va", "vb"), ("vc", "vd")];

#[test]
fn the_units_are_what_systemd_understands() -> Result<()> {
    let scratch = Scratch::new()?;
    let command = library::library_dir()?.join("../bin/fanpcap");
    let command = command.canonicalize()?.display().to_string();
    let mut verify = on_system("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    for name in [
        UNIT,
        "fanpcap-serve@.service",
        "fanpcap-poller@.service",
        "fanpcap-metrics.service",
        "fanpcap-node.service",
        "fanpcap-coordinator.service",
        "fanpcap-analyzer.service",
    ] {
        let unit = text(name)?.replace("/usr/bin/fanpcap", &command);
        verify.arg(scratch.write(name, &unit)?);
    }
    // systemd-analyze checks a drop-in only together with its service's unit, in a directory that
    // systemd searches. So the test writes a unit for the drop-in.
    let service = "[Service]\nExecStart=/bin/true\n";
    verify.arg(scratch.write("fanpcap-example.service", service)?);
    let dropins = scratch.file("fanpcap-example.service.d");
    fs::create_dir(&dropins)?;
    fs::write(dropins.join("group.conf"), text("fanpcap-group.conf")?)?;
    // systemd warns of unknown settings and ignores them. `is_judged` treats each warning as an
    // error.
    is_judged(&scratch, &mut verify).map(drop)
}

/// systemd would stop such a unit when the device goes, and nothing would start it again.
#[test]
fn no_unit_stops_for_good_when_its_device_goes() -> Result<()> {
    let mut units = 0;
    for entry in fs::read_dir(examples())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".service") {
            continue;
        }
        units += 1;
        let unit = text(&name)?;
        let ties = ["BindsTo=", "Requires=", "Requisite=", "PartOf="];
        let is_tied = |line: &&str| ties.iter().any(|tie| line.starts_with(tie));
        let tied = unit
            .lines()
            .find(|line| is_tied(line) && line.contains(".device"));
        ensure!(tied.is_none(), "{name}: {tied:?}");
        let restarts =
            unit.contains("\nRestart=on-failure\n") || unit.contains("\nRestart=always\n");
        ensure!(restarts, "{name}");
    }
    ensure!(units >= 7, "{units}");
    // The copies end with their device: only this option starts them again.
    ensure!(text(UNIT)?.contains(" run -n 4 --restart -- "), "{UNIT}");
    Ok(())
}

#[test]
fn the_alert_rules_pass_their_tests() -> Result<()> {
    let scratch = Scratch::new()?;
    for words in [
        ["check", "rules", "fanpcap.rules.yml"],
        ["test", "rules", "fanpcap.rules.test.yml"],
        ["check", "rules", "fanpcap-cluster.rules.yml"],
        ["test", "rules", "fanpcap-cluster.rules.test.yml"],
    ] {
        let mut promtool = on_system("promtool");
        promtool.args(words).current_dir(examples());
        let Ok(ended) = run(&scratch, &mut promtool) else {
            skip("no promtool here");
            return Ok(());
        };
        ended.success()?;
    }
    Ok(())
}

#[test]
fn the_alert_rules_ask_for_metrics_that_there_are() -> Result<()> {
    for metrics in PAGES {
        let rules = text(&metrics.file("rules.yml"))?;
        let named = metrics.check(&rules)?;
        ensure!(named >= 10, "{named}");
        let tests = text(&metrics.file("rules.test.yml"))?;
        let alerts = rules
            .lines()
            .filter_map(|line| line.split_once("- alert: "));
        for (_, alert) in alerts {
            let tried = format!("alertname: {alert}\n        exp_alerts:\n");
            ensure!(tests.contains(&tried), "{tried}");
        }
    }
    Ok(())
}

#[test]
fn the_dashboards_show_metrics_that_there_are() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for metrics in PAGES {
        let dashboard: Value = serde_json::from_str(&text(&metrics.file("dashboard.json"))?)?;
        let panels = dashboard["panels"].as_array().context("panels")?;
        let places: BTreeSet<String> = panels.iter().map(|it| it["gridPos"].to_string()).collect();
        ensure!(
            panels.len() >= 8 && places.len() == panels.len(),
            "{places:?}"
        );
        let targets = panels.iter().filter_map(|it| it["targets"].as_array());
        for target in targets.flatten() {
            let query = target["expr"].as_str().context("a query")?;
            ensure!(metrics.check(query)? == 1, "{query}");
            let query = query
                .replace("$__rate_interval", "5m")
                .replace("$device", ".*")
                .replace("$cluster", ".*");
            // The position makes the name a different one.
            let record = format!("query_{}", rules.len());
            rules.push_str(&format!("  - record: {record}\n    expr: '{query}'\n"));
        }
        for variable in dashboard["templating"]["list"].as_array().context("list")? {
            metrics.check(variable["query"].as_str().context("a variable")?)?;
        }
    }
    let rules = scratch.write("dashboard.rules.yml", &rules)?;
    let mut promtool = on_system("promtool");
    promtool.args(["check", "rules"]).arg(rules);
    match run(&scratch, &mut promtool) {
        Ok(ended) => ended.success().map(drop)?,
        Err(_) => skip("no promtool here"),
    }
    Ok(())
}

/// The metrics of a program's example files, and the page that has them.
struct Metrics {
    name: &'static str,
    page: &'static str,
    before: &'static str,
    behind: &'static str,
}

const PAGES: [Metrics; 2] = [
    Metrics {
        name: "fanpcap",
        page: "man/fanpcap-metrics.in",
        before: "\n.B ",
        behind: "\n",
    },
    Metrics {
        name: "fanpcap-cluster",
        page: "operating.md",
        before: "\n| `",
        behind: "` | ",
    },
];

impl Metrics {
    /// The name of an example file.
    fn file(&self, end: &str) -> String {
        format!("{}.{end}", self.name)
    }

    /// Checks that the page has each metric that a text names. Returns how often one is named.
    fn check(&self, text: &str) -> Result<usize> {
        let page = fs::read_to_string(root().join("docs").join(self.page))?;
        let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let metrics = text.split(word).filter(|it| it.starts_with("fanpcap_"));
        let metrics: Vec<&str> = metrics.collect();
        for metric in &metrics {
            let row = format!("{}{metric}{}", self.before, self.behind);
            ensure!(page.contains(&row), "{metric}");
        }
        Ok(metrics.len())
    }
}

#[test]
fn the_containers_files_are_yaml_and_allow_what_the_unit_does() -> Result<()> {
    let scratch = Scratch::new()?;
    let load = "import sys, yaml\nfor path in sys.argv[1:]: list(yaml.safe_load_all(open(path)))";
    let mut python = on_system("python3");
    python.args(["-c", load]);
    for (name, key) in [
        ("compose.yaml", "cap_add: ["),
        ("kubernetes.yaml", "add: ["),
    ] {
        python.arg(examples().join(name));
        let text = text(name)?;
        let capabilities = text.split_once(key).context(key)?.1.split_once(']');
        let allowed: Vec<&str> = capabilities.context(key)?.0.split(", ").collect();
        for capability in capabilities_of_unit()? {
            let short = capability.trim_start_matches("CAP_").to_owned();
            ensure!(allowed.contains(&&*short), "{name}: {short}, {allowed:?}");
        }
    }
    match run(&scratch, &mut python) {
        Ok(ended) if ended.err.contains("No module named") => skip("no python3-yaml here"),
        Ok(ended) => ended.success().map(|_| ())?,
        Err(_) => skip("no python3 here"),
    }
    Ok(())
}

#[test]
fn the_containers_share_the_hosts_network_and_pages_alone() -> Result<()> {
    for name in ["compose.yaml", "kubernetes.yaml"] {
        let text = text(name)?;
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.starts_with('#')) {
            // CAP_SYS_PTRACE gives a container access to the files of all processes that it can
            // see. So an example must not let a container see processes outside it.
            for word in ["pid: host", "ipc: host", "hostPID", "hostIPC", "privileged"] {
                ensure!(!line.starts_with(word), "{name}: {line}");
            }
            for key in ["- /", "hostPath: {path: "] {
                if let Some((_, rest)) = line.split_once(key) {
                    let path = rest.trim_start_matches('/');
                    ensure!(path.starts_with("run/fanpcap/v7"), "{name}: {line}");
                }
            }
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root: captures in a network namespace"]
fn the_units_command_shares_packets_of_two_devices_with_the_units_capabilities() -> Result<()> {
    let scratch = Scratch::new()?;
    let allowed = capabilities_of_unit()?.join(",+").to_lowercase();
    let allowed = format!("--bounding-set=-all,+{}", allowed.replace("cap_", ""));
    netns::within_new(|| {
        let mut running = Vec::new();
        for (peer, device) in DEVICES {
            Veth::new(peer, device, 1)?;
            let line = command_of_unit(device, &scratch.file(""))?;
            let shell = format!("exec setpriv {allowed} --inh-caps=-all --no-new-privs {line}");
            let program = Program::new("sh", "in group ")?.args(["-c", &shell]);
            running.push(program.start(&scratch)?);
        }
        for member in &running {
            member::wait_for_members(group_of(&member.said()?)?, 4)?;
        }
        for (peer, _) in DEVICES {
            let injector = Injector::open(peer)?;
            for frame in traffic::frames(1, &traffic::flows(1, 25), 0..FRAMES)? {
                injector.send(&frame.bytes)?;
            }
        }
        // Wait until tcpdump has read the packets. It reads at least once a second.
        thread::sleep(Duration::from_millis(1500));
        for member in running {
            let said = member.stop()?.said;
            let all = said.lines().find(|line| line.contains("fanpcap: all"));
            let all: Vec<&str> = all.context("the sums")?.split_whitespace().collect();
            let expected = format!("fanpcap: all 4 {FRAMES} 0 {FRAMES}");
            ensure!(all.join(" ") == expected, "{said}");
        }
        Ok(())
    })
}

/// The group that a run has chosen, which it prints as `in group N, MODE`.
fn group_of(said: &str) -> Result<u16> {
    let (_, rest) = said.split_once("in group ").context("a group")?;
    let number = rest.split(',').next().unwrap_or_default();
    number.parse().with_context(|| said.to_owned())
}

/// Returns the unit's command as systemd runs it for the device, with files in `directory`.
fn command_of_unit(device: &str, directory: &Path) -> Result<String> {
    let unit = text(UNIT)?.replace("\\\n", " ");
    let lines = unit.lines();
    let line = lines
        .filter_map(|line| line.strip_prefix("ExecStart="))
        .next();
    let command = library::library_dir()?.join("../bin/fanpcap");
    let directory = format!("{}/", directory.display());
    Ok(line
        .context("ExecStart")?
        .replace(
            "/usr/bin/fanpcap",
            &command.canonicalize()?.display().to_string(),
        )
        .replace("/var/lib/fanpcap/", &directory)
        .replace("%I", device)
        .replace("$$", "$")
        .replace("%%", "%"))
}

fn capabilities_of_unit() -> Result<Vec<String>> {
    let unit = text(UNIT)?;
    let mut lines = unit.lines();
    let set = lines.find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let set = set.context("the unit's capabilities")?;
    Ok(set.split(' ').map(str::to_owned).collect())
}

fn text(name: &str) -> Result<String> {
    let path = examples().join(name);
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

fn examples() -> PathBuf {
    root().join("packaging/examples")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
