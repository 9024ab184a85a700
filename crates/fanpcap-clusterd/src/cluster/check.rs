//! `fanpcap cluster check`: finds mistakes in a cluster.conf.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fanpcap_linux::interface;
use fanpcap_select::Key;
use fanpcap_terminal::streams;

use super::{doctor, selected};
use crate::conf::{Conf, PATH, Role};

/// Finds mistakes in a cluster.conf, and in the files that it names
///
/// The files that cluster.conf names are keys and certificates.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// The settings, for a command line without --config
    #[arg(value_name = "FILE", hide = true, conflicts_with = "config")]
    file: Option<PathBuf>,
    /// Prints the problems of this machine as JSON, for `fanpcap doctor`
    #[arg(long, hide = true)]
    doctor: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let file = arguments.file.as_ref().unwrap_or(&arguments.config);
    if arguments.doctor {
        streams::print(&format!("{}\n", doctor::json(file)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let conf = Conf::load(file)?;
    conf.check_files(Role::Node)?;
    conf.filter()?;
    let (file, cluster) = (file.display(), &conf.cluster);
    if conf.selection.key == Key::RoundRobin && conf.beacon.is_none() {
        bail!(
            "{file}: 'select = round_robin' needs beacons: write 'beacon = DEVICE' in the file of \
             each coordinator"
        );
    }
    let gets = selected::gets(conf.selection.key);
    streams::print(&format!(
        "{file}: no mistakes; cluster {cluster}; {gets}\n{}",
        missing(&conf)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Notes about devices that this machine lacks. The file may be meant for another machine.
fn missing(conf: &Conf) -> String {
    let devices = conf.devices.iter().map(|name| ("device", name));
    let devices = devices.chain(conf.beacon.iter().map(|name| ("beacon", name)));
    let missing = devices.filter(|(_, name)| interface::index(name).is_none());
    let note = |(key, name)| {
        format!(
            "note: '{key} = {name}': this machine has no such device: 'ip link' lists its devices\n"
        )
    };
    missing.map(note).collect()
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    fn checked(more: &str) -> Result<ExitCode> {
        let scratch = Scratch::new()?;
        let text = format!("cluster = a\nengine = etcd\netcd = http://127.0.0.1:1\n{more}");
        let file = scratch.write("cluster.conf", &text)?;
        run(&Arguments {
            config: file,
            file: None,
            doctor: false,
        })
    }

    #[test]
    fn devices_that_this_machine_lacks_are_noted() {
        let conf = |device: &str| {
            let text =
                format!("cluster = a\nengine = etcd\netcd = http://127.0.0.1:1\ndevice = {device}");
            Conf::parse(&text, "c").unwrap()
        };
        assert_eq!(missing(&conf("lo")), "");
        assert!(missing(&conf("lo, no-such-dev")).starts_with("note: 'device = no-such-dev': "));
    }

    #[test]
    fn turns_without_beacons_are_a_mistake() {
        let error = checked("select = round_robin\n").unwrap_err().to_string();
        assert!(
            error.ends_with("in the file of each coordinator"),
            "{error}"
        );
        assert!(error.contains("'beacon = DEVICE'"), "{error}");
        checked("").unwrap();
    }
}
