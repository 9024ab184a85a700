//! docs/errors.md, section "Settings", is exact: this test produces each listed error as printed
//! there. `FANPCAP_BLESS=1 cargo test -p fanpcap --test errors` rewrites the printed blocks.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use fanpcap::request::{named_twice, unreadable};
use fanpcap_config::device::Device;
use fanpcap_config::driver::Driver;
use fanpcap_config::fanout::Script;
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Environment, Settings};
use fanpcap_config::steering::Steering;
use fanpcap_group::join::{EngineError, JoinError, ProgramError};
use fanpcap_group::steered::SteerError;
use fanpcap_linux::bpf::{self, LoadError};
use fanpcap_linux::process::memory::Limit;
use fanpcap_nic::error::DeviceError;
use fanpcap_poll::message::{Malformed, Refused};
use fanpcap_polled::EnterError;
use fanpcap_testkit::errors_page;
use fanpcap_xdp::{Unavailable, crowded, no_memory};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fs, io};

const SOURCES: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../fanpcap-config/src"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../fanpcap-group/src"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/src"),
];
const INTERFACES: [&str; 2] = ["eth0", "eth0_1"];

fn environment(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
    let variables = variables.iter().map(owned).collect();
    Environment {
        variables,
        secure: false,
        system_config: PathBuf::from("/etc/pcap.conf"),
    }
}

fn in_file(config: &str) -> Report {
    Settings::parse(&environment(&[]), config, "/etc/pcap.conf").unwrap_err()
}

fn in_variables(variables: &[(&str, &str)]) -> Report {
    Settings::parse(&environment(variables), "", "").unwrap_err()
}

fn for_handle(variables: &[(&str, &str)], config: &str, device: &str) -> Report {
    let settings = Settings::parse(&environment(variables), config, "/etc/pcap.conf").unwrap();
    let device = Device::classify(device, |name| INTERFACES.contains(&name));
    let pcap = |_: &str| Err("no libpcap here".to_owned());
    let compile = |script: &Script| Steering::compile(script, &pcap).map(Arc::new);
    settings
        .plan(&device, None, &INTERFACES.map(str::to_owned), &compile)
        .unwrap_err()
}

fn not_set() -> Report {
    let config = "combined_channels@eth0 = 12";
    let settings = Settings::parse(&environment(&[]), config, "/etc/pcap.conf").unwrap();
    let device = Device::classify("eth0", |_| true);
    let none = |_: &Script| unreachable!("there is no steering program");
    let plan = settings.plan(&device, None, &[], &none).unwrap();
    let many = DeviceError::TooManyChannels {
        kind: "combined",
        asked: 12,
        most: 8,
    };
    plan.placement.unwrap().blame(Some(0), &many.to_string())
}

fn too_large() -> String {
    let step = "when (has_addr \"fe80::1\") (inc 0) >-> ";
    format!("fanout@7 = main = {}steer_flow", step.repeat(1000))
}

fn balanced_classes() -> Report {
    let text = "+balance main = classify 2 >-> steer_flow";
    let pcap = |_: &str| Err("no libpcap here".to_owned());
    Steering::compile_for_engine(&Script::of_title(text), &pcap).unwrap_err()
}

/// The error of a file with a program after `len` blanks. The test runs in the file's directory, so
/// that the name is short.
fn of_file(len: usize) -> Report {
    std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write("steer.pfq", " ".repeat(len) + "main = tpc >-> steer_flow").unwrap();
    let group = [("PCAP_GROUP", "7"), ("PCAP_FANOUT", "file:steer.pfq")];
    let report = for_handle(&group, "", "eth0");
    fs::remove_file("steer.pfq").unwrap();
    report
}

fn at_load(path: &str) -> Report {
    Settings::load(&environment(&[("PCAP_CONFIG", path)])).unwrap_err()
}

/// The error of a machine's config file that everybody may write. The test runs in the file's
/// directory, as for [`too_long`].
fn open_to_all() -> Report {
    std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write("open.conf", "group = 7\n").unwrap();
    fs::set_permissions("open.conf", fs::Permissions::from_mode(0o666)).unwrap();
    let environment = Environment {
        system_config: PathBuf::from("open.conf"),
        ..environment(&[])
    };
    let report = Settings::load(&environment).unwrap_err();
    fs::remove_file("open.conf").unwrap();
    report
}

/// The error of a config file of 1 MiB and one byte. The test runs in the file's directory, so that
/// the name is short.
fn too_long() -> Report {
    std::env::set_current_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write("huge.conf", "#".repeat((1 << 20) + 1)).unwrap();
    let report = at_load("huge.conf");
    fs::remove_file("huge.conf").unwrap();
    report
}

/// A class in a group on the engine `xdp`.
const DEVICE_CLASS: &str = "driver@eth0 = xdp\nfanout@7 = flow +class=2";

/// Produces each error of the section from a small input.
fn produce() -> Vec<Report> {
    let group = [("PCAP_GROUP", "7")];
    let both = [("PCAP_GROUP", "7"), ("PCAP_DEF_GROUP", "8")];
    let many: String = (0..4097).map(|n| format!("group_veth{n} = 1\n")).collect();
    vec![
        at_load("/etc/absent/pcap.conf"),
        at_load("/dev/zero"),
        open_to_all(),
        too_long(),
        in_file("gruop_eth0 = 11"),
        in_file("= 11"),
        in_file("pfq_vlan@11 = 5"),
        in_file("caplen ="),
        in_file("caplen@eth0 = 64"),
        in_file("combined_channels = 2"),
        in_file("irq@eth0 = 0"),
        in_file("steal@eth 3 = yes"),
        in_file("group_eth0 = eleven"),
        in_file("group = 70000"),
        in_file("irq@eth0.0 = 0,3-2"),
        in_file("keep@eth0 = true"),
        in_file("gone@eth0 = yes"),
        in_file("ring@eth0 = 65536"),
        in_file("driver@eth3 = tpaket"),
        in_variables(&both),
        in_file(&many),
        in_file(&format!("> {}", "x".repeat(64 * 1024))),
        in_file("fanout = hsah+defrag"),
        in_file("fanout = +defrag"),
        in_file("fanout@11 = hash +defarg"),
        in_file("fanout@11 = hash +"),
        in_file("fanout@11 = hash defrag"),
        in_file("fanout@11 = rollover+rollover"),
        in_file("fanout@11 = flow +rollover"),
        in_file("fanout@11 = hash +weight=3"),
        in_file("fanout@11 = flow +weight=0"),
        in_file("fanout@11 = flow +weight=2 +weight=3"),
        in_file("fanout@11 = flow +sticky +sticky=9000"),
        in_file("fanout@11 = flow +balance=some"),
        in_file("fanout@11 = flow +balance +balance=all"),
        in_file("fanout@11 = flow +sticky +balance=all"),
        balanced_classes(),
        in_file("fanout@11 = hash +defrag=1"),
        in_file("fanout@11 = flow +class=2 +class=3"),
        for_handle(&group, "> main = do\n>   tpc\n>   steer_flow", "eth0"),
        for_handle(&group, "fanout@7 = main = broadcast", "eth0"),
        for_handle(&group, &too_large(), "eth0"),
        for_handle(&group, "fanout@7 = file:/etc/absent/steer.pfq", "eth0"),
        for_handle(&group, "fanout@7 = file:/dev/zero", "eth0"),
        in_variables(&[("PCAP_MEMBER", "east 1")]),
        in_variables(&[("PCAP_GRUOP", "7")]),
        in_variables(&[("PFQ_GROUP", "7")]),
        in_variables(&[("PCAP_HUB", "/run/hub")]),
        for_handle(&[("PCAP_GROUP_eth0_1", "7")], "", "eth0:1"),
        for_handle(&[("PCAP_FANOUT", "hash")], "", "eth0"),
        not_set(),
        for_handle(&[], "gone@eth0 = wait", "eth0^eth1"),
        for_handle(&[], "steal@eth0 = yes", "eth0"),
        for_handle(&[], "outgoing@eth0 = yes", "afxdp:eth0"),
        for_handle(&group, "driver@eth0 = xdp\nfanout@7 = rollover", "eth0"),
        for_handle(&group, "fanout@7 = flow +class=2", "eth0"),
        for_handle(&group, DEVICE_CLASS, "eth0"),
        for_handle(&group, "", "pfq:"),
        named_twice(&Device::classify("eth0^eth1^eth0", |_| false)).unwrap(),
        unreadable("eth0", &io::Error::from_raw_os_error(24)),
    ]
}

fn of_xdp() -> BTreeMap<String, String> {
    let device = || "eth0".to_owned();
    let of_groups = [
        EngineError::Other {
            group: 7,
            has: "engine xdp".to_owned(),
            wants: "packet sockets".to_owned(),
        },
        EngineError::NoSpare { group: 7, pid: 42 },
        EngineError::Unreachable {
            device: device(),
            reasons: "process 42 (tcpdump): pidfd_getfd: Operation not permitted (os error 1)"
                .to_owned(),
        },
        EngineError::Lost {
            group: 7,
            device: device(),
        },
    ];
    let of_xdp = [
        crowded("eth0"),
        Unavailable::Loopback.into(),
        no_memory(
            64 << 20,
            Some(Limit {
                bytes: 70 << 20,
                used: 2 << 20,
            }),
        ),
        fanpcap_xdp::ProgramError::Load(LoadError::Locked { limit: 65_536 }).into(),
    ];
    let refusals = of_xdp.into_iter().map(EngineError::from);
    let of_groups = of_groups.into_iter().chain(refusals);
    let all = of_groups.map(JoinError::from);
    let all = all.map(|error| (error.slug().to_owned(), error.to_string()));
    let of_handles = [
        (
            "xdp-default-route",
            fanpcap::engine::not_stolen("eth0", "it has an IP address"),
        ),
        (
            "alone-on-xdp",
            format!(
                "pcap_fanout: {}",
                fanpcap::engine::alone(Driver::named("xdp").unwrap())
            ),
        ),
    ];
    let of_handles = of_handles.map(|(name, text)| (name.to_owned(), text));
    all.chain(of_handles).collect()
}

fn of_pollers() -> BTreeMap<String, String> {
    let os = io::Error::from_raw_os_error;
    let text = "the group has as many members as it can have";
    let refused = Refused {
        slug: "poller-full".to_owned(),
        text: text.to_owned(),
    };
    let errors = [
        EnterError::Unreachable(os(2)),
        EnterError::Unreachable(os(13)),
        EnterError::Unreachable(os(24)),
        EnterError::Silent,
        EnterError::Refused(refused),
        EnterError::Malformed(Malformed::Version(2)),
    ];
    let refusals = errors.map(|error| fanpcap_polled::refusal("packet:eth0", error));
    let all = refusals.map(|it| JoinError::from(EngineError::from(it)));
    let all = all.map(|error| (error.slug().to_owned(), error.to_string()));
    let of_handles = [
        ("pfring-absent", pfring(fanpcap_pfring::OpenError::Module)),
        (
            "pfring-environment",
            pfring(fanpcap_pfring::OpenError::Environment(
                "PF_RING_FT_CONF".to_owned(),
            )),
        ),
        (
            "pfring-failed",
            pfring(fanpcap_pfring::OpenError::Privilege),
        ),
        (
            "pfring-lacks",
            fanpcap_polled::pfring::NO_PROGRAM.to_owned(),
        ),
        ("poller-ended", fanpcap_polled::ended("packet:eth0")),
        ("poller-mixed", fanpcap::polled::mixed("packet")),
        (
            "poller-needs-user-namespaces",
            fanpcap::polled::not_permitted(engine("packet"), "socket: Operation not permitted"),
        ),
        ("poller-sends-nothing", fanpcap::polled::NOT_SENT.to_owned()),
        (
            "poller-one-protocol",
            fanpcap::polled::one_protocol("packet"),
        ),
    ];
    let of_handles = of_handles.map(|(name, text)| (name.to_owned(), text));
    all.into_iter().chain(of_handles).collect()
}

fn engine(name: &str) -> Driver {
    Driver::named(name).unwrap()
}

/// The error of a handle for which PF_RING opens no ring.
fn pfring(error: fanpcap_pfring::OpenError) -> String {
    let refusal = fanpcap_polled::pfring::refusal(error);
    JoinError::from(EngineError::from(refusal)).to_string()
}

/// Errors of joining and replacing that no test can cause at will on a device.
fn of_programs() -> BTreeMap<String, String> {
    let os = io::Error::from_raw_os_error;
    let steer = |error| ProgramError::Steer { group: 7, error };
    let refused = bpf::Refused {
        error: os(22),
        log: "0: (95) exit\nR0 !read_ok\n".to_owned(),
    };
    let of_programs = [
        steer(SteerError::Load(LoadError::Locked { limit: 65_536 })),
        steer(SteerError::Load(LoadError::Refused(refused))),
        steer(SteerError::Beside),
        steer(SteerError::Pages(os(37))),
        steer(SteerError::Busy),
    ];
    let of_kernel = JoinError::Kernel {
        group: 7,
        mode: "hash".to_owned(),
        call: "SO_ATTACH_FILTER",
        error: os(12),
    };
    let all = of_programs.into_iter().map(JoinError::from);
    let all = all.chain([of_kernel]);
    all.map(|error| (error.slug().to_owned(), error.to_string()))
        .collect()
}

static PRODUCED: LazyLock<Vec<Report>> = LazyLock::new(produce);

/// The slugs in the crate's code outside tests.
fn in_code(directory: &Path, slugs: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            in_code(&path, slugs);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for call in code.split("Fault::new(").skip(1) {
            if let Some(slug) = call.trim_start().strip_prefix('"') {
                let slug = slug.split('"').next().unwrap().to_owned();
                slugs.insert(slug, path.display().to_string());
            }
        }
    }
}

/// The test can rewrite the whole page, so one test checks all sections.
#[test]
fn the_page_lists_every_error_as_it_is() {
    let rendered = |report: &Report| (report.slug.to_owned(), report.render(255));
    errors_page::check("Settings", &PRODUCED.iter().map(rendered).collect()).unwrap();
    let mut of_programs = of_programs();
    let of_filter = SteerError::Attach(io::Error::from_raw_os_error(12));
    // `fanpcap::filter` puts this beginning before the text of the error.
    let text = format!("the filter can't be set beside the steering program: {of_filter}");
    of_programs.insert("filter-beside-program".to_owned(), text);
    errors_page::check("With a steering program", &of_programs).unwrap();
    errors_page::check("On the XDP engine", &of_xdp()).unwrap();
    errors_page::check("From a poller", &of_pollers()).unwrap();
}

/// Collects the slugs of the errors of joining from the source code of `fn slug`. The compiler
/// makes sure that `fn slug` has a slug for each variant.
fn of_joining(directory: &Path, slugs: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            of_joining(&path, slugs);
            continue;
        }
        let code = fs::read_to_string(&path).unwrap();
        for function in code.split("fn slug(").skip(1) {
            let body = function.split("\n    }\n").next().unwrap_or_default();
            slugs.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
}

#[test]
fn every_error_of_joining_has_its_section() {
    let mut slugs = BTreeSet::new();
    for directory in SOURCES {
        of_joining(Path::new(directory), &mut slugs);
    }
    assert!(slugs.len() > 20, "the search finds only {slugs:?}");
    let listed = errors_page::names().unwrap();
    let missing: Vec<_> = slugs.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/errors.md lacks {missing:?}");
}

/// Counts the errors in the chain, from this one to the first without a source.
fn depth(error: &dyn Error) -> usize {
    error.source().map_or(1, |source| 1 + depth(source))
}

#[test]
fn an_error_tells_its_source() {
    let os = || io::Error::from_raw_os_error(1);
    let steer = SteerError::Load(LoadError::Map(os()));
    let program = ProgramError::Steer {
        group: 7,
        error: steer,
    };
    let error = JoinError::Stranded {
        group: 7,
        error: Box::new(program.into()),
    };
    assert_eq!(depth(&error), 6, "{error:?}");
    let untold = ProgramError::Untold {
        group: 7,
        error: os(),
    };
    assert_eq!(depth(&untold), 2);
    assert_eq!(depth(&JoinError::NotPacket), 1);
}

#[test]
fn every_error_in_the_code_is_produced() {
    let produced: Vec<&str> = PRODUCED.iter().map(|report| report.slug).collect();
    let mut slugs = BTreeMap::new();
    for directory in SOURCES {
        in_code(Path::new(directory), &mut slugs);
    }
    assert!(slugs.len() > 30, "the search finds only {slugs:?}");
    for (slug, file) in slugs {
        assert!(
            produced.contains(&slug.as_str()),
            "'{slug}' of {file} is not produced"
        );
    }
}

#[test]
fn a_file_of_a_program_is_the_place_of_what_is_wrong_in_it() {
    let rendered = of_file(0).render(255);
    let shown = "\nmain = tpc >-> steer_flow\n       ^";
    assert!(
        rendered.starts_with("steer.pfq:1:8: ") && rendered.ends_with(shown),
        "{rendered}"
    );
    assert_eq!(of_file(64 * 1024).slug, "program-too-long");
}
