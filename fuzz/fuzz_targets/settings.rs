//! Any config file and environment variables. The parser accepts them, or refuses them with a
//! place, and never panics.
#![no_main]

use fanpcap_config::device::Device;
use fanpcap_config::fanout::Script;
use fanpcap_config::settings::{Environment, Settings};
use fanpcap_config::steering::Steering;
use libfuzzer_sys::fuzz_target;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

const INTERFACES: [&str; 3] = ["eth0", "wan-1", "eth0_1"];

// The input has three parts with NUL between them: the config file, the variables (one a line), and
// the device.
fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0');
    let mut part = || parts.next().unwrap_or_default();
    let (config, variables, device) = (part(), part(), part());
    let variable = |line: &str| {
        line.split_once('=')
            .map(|(n, v)| (OsString::from(n), v.into()))
    };
    let environment = Environment {
        variables: variables.lines().filter_map(variable).collect(),
        secure: false,
        system_config: PathBuf::new(),
    };
    let device = Device::classify(device, |name| INTERFACES.contains(&name));
    let interfaces = INTERFACES.map(str::to_owned);
    let pcap = |_: &str| Err("no libpcap here".to_owned());
    let compile = |script: &Script| Steering::compile(script, &pcap).map(Arc::new);
    let plan = Settings::parse(&environment, config, "pcap.conf")
        .and_then(|settings| settings.plan(&device, None, &interfaces, &compile));
    if let Err(report) = plan {
        let place = report.place.as_ref().expect("a refusal has a place");
        assert!(place.line >= 1 && place.column >= 1);
        assert!(place.column <= place.text.chars().count() + 1);
        assert!(report.render(255).len() <= 255);
    }
});
