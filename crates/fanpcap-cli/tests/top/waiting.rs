//! Members whose device is gone and that wait for it: `top`, and the commands that look only once.

use super::*;

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn members_that_wait_for_their_device_are_told() {
    netns::within_new(|| {
        Veth::new("ftop0", "ftop1", 1)?;
        let scratch = Scratch::new()?;
        let start = |number: u32| {
            let file = scratch.file(&format!("{number}.pcap"));
            let program = Program::tcpdump("ftop1", file)?.group(GROUP, "flow");
            program.set("PCAP_GONE", "wait").start(&scratch)
        };
        let _members = [start(0)?, start(1)?];
        member::wait_for_members(GROUP, 2)?;
        let mut live = Command::new(COMMAND)
            .args(["top", "--json", "--interval", "0.2"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(live.stdout.take().context("output")?).lines();
        let mut look_until = |what: &str, is_so: &dyn Fn(&[Value]) -> bool| {
            await_for(what, LIMIT, || {
                let line = lines.next().context("a line")??;
                let view: Value = serde_json::from_str(&line)?;
                let devices = view["devices"].as_array().context("devices")?;
                Ok(is_so(devices).then(|| devices.clone()))
            })
        };
        let captures = |devices: &[Value]| {
            let members = |device: &Value| device["groups"][0]["members_total"] == 2;
            devices.len() == 1 && devices[0]["device"] == "ftop1" && members(&devices[0])
        };
        look_until("two members", &captures)?;
        veth::ip("link delete ftop0")?;
        let gone = look_until("two that wait", &|devices: &[Value]| {
            let waits = |it: &Value| it["waits_for_device"] == true;
            let sockets = devices.iter().filter_map(|it| it["sockets"].as_array());
            sockets.flatten().filter(|it| waits(it)).count() == 2
        })?;
        let [gone] = &gone[..] else {
            anyhow::bail!("{gone:?}");
        };
        let of = ["device", "awaited_device"].map(|name| gone[name].as_str());
        ensure!(of == [Some("gone"), Some("ftop1")], "{gone}");
        let expected = serde_json::json!([{"device": "ftop1", "waiting_members_total": 2}]);
        ensure!(gone["awaited_devices"] == expected, "{gone}");
        json_page::check(PAGE, &top_json(&[])?)?;
        let once = top(&["--once", "--interval", "0.1"])?.stdout;
        let once = String::from_utf8_lossy(&once).into_owned();
        ensure!(once.contains("\nftop1 (gone): 2 members wait  "), "{once}");
        say_who_waits()?;
        keep_the_devices_settings(&scratch)?;
        Veth::new("ftop0", "ftop1", 1)?;
        look_until("two members again", &captures)?;
        live.kill()?;
        live.wait()?;
        Ok(())
    })
    .unwrap();
}

/// Checks that commands that look only once say that two members wait for ftop1, which is gone.
fn say_who_waits() -> Result<()> {
    let said = |words: &[&str]| -> Result<[String; 2]> {
        let output = Command::new(COMMAND).args(words).output()?;
        Ok([output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()))
    };
    let [list, _] = said(&["group"])?;
    let expected = "no groups in this network namespace\n\
                    ftop1 (gone): 2 members wait until a device of this name is up\n";
    ensure!(list == expected, "{list}");
    let [line, _] = said(&["group", "--json"])?;
    let told: Value = serde_json::from_str(&line)?;
    ensure!(told["device"] == "gone" && told["waiting_members_total"] == 2);
    ensure!(told["awaited_device"] == "ftop1", "{told}");
    let [families, _] = said(&["metrics"])?;
    let waiting = "\nfanpcap_device_waiting_members{device=\"ftop1\",ifindex=\"4294967295\"} 2\n";
    ensure!(families.contains(waiting), "{families}");
    ensure!(!families.contains("\"any\""), "{families}");
    let [families, _] = said(&["metrics", "any"])?;
    ensure!(families.is_empty(), "{families}");
    let [view, _] = said(&["top", "any", "--once", "--json", "--interval", "0.1"])?;
    ensure!(!view.contains("\"any\""), "{view}");
    for words in [["group", "ftop1"], ["metrics", "ftop1"]] {
        let [_, error] = said(&words)?;
        ensure!(error.contains("no device 'ftop1' "), "{error}");
        ensure!(
            error.ends_with("; ftop1 (gone): 2 members wait\n"),
            "{error}"
        );
    }
    // Nobody waits for this device.
    let misspelt = Command::new(COMMAND).args(["doctor", "ftop9"]).output()?;
    let error = String::from_utf8_lossy(&misspelt.stderr).into_owned();
    ensure!(
        misspelt.status.code() == Some(1) && misspelt.stdout.is_empty(),
        "{error}"
    );
    ensure!(error.contains("no device 'ftop9' "), "{error}");
    ensure!(
        error.ends_with("; ftop1 (gone): 2 members wait\n"),
        "{error}"
    );
    for words in [&["doctor", "ftop1", "--json"][..], &["doctor", "--json"]] {
        let [page, error] = said(words)?;
        let told: Value = serde_json::from_str(&page).context(error)?;
        let found = told["findings"].as_array().context("findings")?;
        let found = found.iter().find(|it| it["name"] == "device-gone");
        let found = found.with_context(|| page.clone())?;
        let what = found["what"].as_str().unwrap_or_default();
        ensure!(found["place"] == "ftop1" && what.starts_with("2 members wait "));
    }
    let [lo, _] = said(&["doctor", "lo"])?;
    ensure!(!lo.contains("members wait"), "{lo}");
    Ok(())
}

/// Checks that no command calls a setting of ftop1 without effect while members wait for it, and
/// that settings for an unused group and for another absent device are still without effect.
fn keep_the_devices_settings(scratch: &Scratch) -> Result<()> {
    let text = format!(
        "gone@ftop1 = wait\ngroup_ftop1 = {GROUP}\nring@ftop1 = 32M\nfanout@9 = lb\nring@w9 = 2M\n"
    );
    let file = scratch.write("pcap.conf", &text)?;
    let asked = |words: &[&str]| -> Result<Value> {
        let mut command = Command::new(COMMAND);
        let output = command.args(words).env("PCAP_CONFIG", &file).output()?;
        serde_json::from_slice(&output.stdout).context(format!("{words:?}"))
    };
    for device in ["ftop1", "lo"] {
        let told = asked(&["doctor", device, "--json"])?;
        let found = told["findings"].as_array().context("findings")?;
        let vain = found.iter().filter(|it| it["name"] == "set-in-vain");
        let places: Vec<&str> = vain.filter_map(|it| it["place"].as_str()).collect();
        let expected = [4, 5].map(|line| format!("{}:{line}", file.display()));
        ensure!(places == expected, "{told}");
        let told = asked(&["config", device, "--json"])?;
        let vain = told["without_effect"].as_array().context("an array")?;
        let reasons: Vec<&Value> = vain.iter().map(|it| &it["reason"]).collect();
        ensure!(reasons == ["nobodys-group", "no-such-device"], "{told}");
    }
    Ok(())
}
