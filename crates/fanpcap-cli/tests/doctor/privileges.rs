//! Users without capabilities, and programs with more privileges than their user.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::asked::{Shell, within};

fn has(said: &str, name: &str) -> Result<bool> {
    let line = said.lines().last().context("doctor's line")?;
    let told: Value = serde_json::from_str(line).with_context(|| said.to_owned())?;
    let findings = told["findings"].as_array().context("findings")?;
    Ok(findings.iter().any(|it| it["name"] == name))
}

#[test]
#[ignore = "needs root: capabilities"]
fn a_user_who_may_not_load_programs_is_told() -> Result<()> {
    within(|_| {
        let shell = Shell::new("fdr1")?;
        let ask = "setpriv --bounding-set -bpf,-sys_admin fanpcap doctor fdr1 --json";
        let (status, said) = shell.run(ask)?;
        ensure!(status == 0 && has(&said, "no-cap-bpf")?, "{said}");
        let (status, said) =
            shell.run("setpriv --bounding-set -net_raw fanpcap doctor fdr1 --json")?;
        ensure!(status == 3 && has(&said, "no-cap-net-raw")?, "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn limits_of_the_shell_are_found_and_raised() -> Result<()> {
    within(|_| {
        let mut shell = Shell::new("fdr1")?;
        assert!(shell.find("", "file-size")?.is_none());
        for (limit, name, effect) in [
            ("ulimit -S -f 0", "file-size", "distorts"),
            ("ulimit -S -n 40", "few-descriptors", "refuses"),
        ] {
            shell.before = limit.to_owned();
            assert_eq!(shell.mend(name)?.effect, effect);
        }
        Ok(())
    })
}

/// Another user runs doctor. The test runs the finding's command as root, and therefore without its
/// sudo.
#[test]
#[ignore = "needs root: another user"]
fn a_user_gets_a_shell_that_may_capture() -> Result<()> {
    within(|scratch| {
        let shell = Shell::new("fdr1")?.for_any_user(scratch)?;
        let as_user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
        let (_, said) = shell.run(&format!("{as_user} fanpcap doctor fdr1 --json || true"))?;
        ensure!(has(&said, "no-cap-net-raw")?, "{said}");
        let told: Value = serde_json::from_str(said.trim())?;
        let findings = told["findings"].as_array().context("findings")?;
        let found = findings.iter().find(|it| it["name"] == "no-cap-net-raw");
        let fix = found.and_then(|it| it["fix"].as_str()).context("a fix")?;
        let fix = fix.replace("sudo -E ", "");
        let script = scratch.write(
            "shell",
            "#!/bin/sh\nid -u\nfanpcap doctor fdr1 --json 2>&1\n",
        )?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        let (status, said) = shell.run(&format!("export SHELL={}\n{fix}", script.display()))?;
        ensure!(status == 0 && said.starts_with("65534\n"), "{said}");
        assert!(!has(&said, "no-cap-net-raw")? && !has(&said, "no-cap-bpf")?);
        Ok(())
    })
}

/// Root runs doctor for a user whose home has a config file.
#[test]
#[ignore = "needs root: another user, mounts"]
fn what_another_user_runs_into_is_told_to_root() -> Result<()> {
    within(|scratch| {
        let passwd = fs::read_to_string("/etc/passwd")?;
        let home = scratch.file("home");
        fs::create_dir(&home)?;
        let line = format!("fdrada:x:4711:4712::{}:/bin/sh\n", home.display());
        let passwd = scratch.write("passwd", &(passwd + &line))?;
        fs::write(home.join(".pcap.conf"), "def_group = seven\n")?;
        let mut shell = Shell::new("fdr1")?.for_any_user(scratch)?;
        shell.before = format!(
            "mount --bind {} /etc/passwd && chown -R 4711 {} || exit 99",
            passwd.display(),
            home.display()
        );
        let ask = "unset PCAP_CONFIG; fanpcap doctor fdr1 --user fdrada";
        let (status, said) = shell.run(&format!("{ask} --json"))?;
        ensure!(status == 3, "{said}");
        assert!(
            has(&said, "no-cap-net-raw")? && has(&said, "settings")?,
            "{said}"
        );
        let told: Value = serde_json::from_str(said.trim())?;
        assert_eq!(told["user"], "fdrada");
        let findings = told["findings"].as_array().context("findings")?;
        let fixes = findings.iter().filter_map(|it| it["fix"].as_str());
        let fix = fixes
            .clone()
            .find(|it| it.contains("setpriv"))
            .context("a fix")?;
        ensure!(fix.contains("--reuid=4711 --regid=4712 "), "{fix}");
        let (_, page) = shell.run(ask)?;
        ensure!(
            page.starts_with("Looked at fdr1 ") && page.contains("as user fdrada."),
            "{page}"
        );
        // Root's own settings and capabilities have no problem, so doctor without `--user` reports
        // none.
        assert!(!has(
            &shell.run("fanpcap doctor fdr1 --json")?.1,
            "no-cap-net-raw"
        )?);
        let (status, said) = shell.run("fanpcap doctor --user fdrbob 2>&1")?;
        ensure!(status == 1 && said.contains("no user \"fdrbob\""), "{said}");
        let (status, said) = shell.run(
            "setpriv --reuid 4711 --regid 4712 --clear-groups fanpcap doctor --user root 2>&1",
        )?;
        ensure!(
            status == 1 && said.contains("run this command as root"),
            "{said}"
        );
        Ok(())
    })
}

/// A script replaces setpriv(1), by which root's doctor starts the user's doctor. It writes down
/// the environment and the session that the user's doctor would have.
#[test]
#[ignore = "needs root: a namespace"]
fn another_users_doctor_has_neither_secrets_nor_the_terminal() -> Result<()> {
    within(|scratch| {
        let (bin, seen) = (scratch.file("bin"), scratch.file("seen"));
        fs::create_dir(&bin)?;
        let script = format!(
            "#!/bin/sh\nenv >{seen}\nread -r _ _ _ _ _ session _ </proc/$$/stat\n\
             echo \"leader: $((session == PPID))\" >>{seen}\necho '{{\"findings\": []}}'\n",
            seen = seen.display()
        );
        let program = scratch.write("bin/setpriv", &script)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let shell = Shell::new("fdr1")?;
        let (_, said) = shell.run(&format!(
            "export SECRET=abc PCAP_ANY=def PATH={}:$PATH; fanpcap doctor fdr1 --user root 2>&1",
            bin.display()
        ))?;
        ensure!(said.contains("and limits as user root."), "{said}");
        let seen = fs::read_to_string(seen)?;
        assert!(
            !seen.contains("SECRET") && seen.contains("PCAP_ANY=def\n"),
            "{seen}"
        );
        assert!(seen.contains("leader: 1\n"), "{seen}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn a_privileged_program_is_found() -> Result<()> {
    within(|scratch| {
        let program = scratch.file("program");
        fs::copy("/bin/true", &program)?;
        let shell = Shell::new(&format!("fdr1 --program {}", program.display()))?;
        assert!(shell.find("", "privileged-program")?.is_none());
        fs::set_permissions(&program, Permissions::from_mode(0o4755))?;
        let found = shell.found("privileged-program")?;
        assert_eq!(
            (found.effect.as_str(), found.fix.as_str()),
            ("distorts", "fanpcap enable --system")
        );
        // File capabilities have the same effect.
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        shell.run(&format!("setcap cap_net_raw=ep {}", program.display()))?;
        shell.found("privileged-program")?;
        Ok(())
    })
}
