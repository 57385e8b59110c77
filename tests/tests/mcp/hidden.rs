//! What the program of an MCP server sees of its node: not the data directory.
//!
//! The twin is the same program behind a keeper that hides nothing.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
};

use clawnode_tests::{
    process::{Home, Node, TestBackend, binary},
    wait::until,
};

use super::Outcome;

/// Who owns nothing.
const NOBODY: u32 = 65_534;

/// What a program says, of this user, in this folder.
fn kept(hidden: &Path, (user, cwd): (u32, &Path), line: &str) -> String {
    let mut keeper = Command::new(binary().unwrap());
    keeper.args(["mcp-keeper", &std::process::id().to_string()]).arg(hidden);
    keeper.args(["/bin/sh", "-c", line]).current_dir(cwd).stdin(Stdio::null());
    if user != 0 {
        keeper.uid(user).gid(user);
    }
    let said = keeper.output().unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn the_data_directory_is_empty_but_for_where_the_program_runs() {
    assert!(rustix::process::geteuid().is_root(), "this test becomes another user: run it as root");
    for user in [0, NOBODY] {
        let root = tempfile::tempdir_in("/tmp").unwrap();
        let data = root.path().join("data");
        let cwd = data.join("mcp/one");
        fs::create_dir_all(&cwd).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for path in [root.path(), &data, &data.join("mcp"), &cwd] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        fs::write(data.join("token"), "a secret\n").unwrap();
        fs::write(cwd.join("kept"), "kept\n").unwrap();
        for file in [data.join("token"), cwd.join("kept")] {
            chown(file, Some(user), Some(user)).unwrap();
        }
        let (shown, none) = (data.display(), Path::new(""));
        let at = (user, cwd.as_path());
        // An older process of the same user: the whole file system is in its `/proc`.
        let mut other = Command::new("sleep").arg("1000").uid(user).gid(user).spawn().unwrap();
        let through = format!("cat /proc/{}/root{shown}/token", other.id());
        for line in [
            &format!("cat {shown}/token"),
            "cat ../../token",
            "cd /; cat $OLDPWD/../../token",
            &format!("umount {shown}; cat {shown}/token"),
            &format!("unshare -Urm sh -c 'umount {shown}; cat {shown}/token'"),
            &through,
        ] {
            // Root has all of its host: this is kept from it by mistake alone.
            if user == 0
                && (line.starts_with("umount") || *line == through || line.starts_with("unshare"))
            {
                continue;
            }
            assert_eq!(kept(&data, at, line), "", "{user}: {line}");
            let is_twin = line.contains("umount") || kept(none, at, line) == "a secret\n";
            assert!(is_twin, "{user}: {line}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
        // What it does where it runs stays; beside it nothing can be left.
        let line = format!("pwd; cat kept; echo new >new; echo x >../x; ls {shown} {shown}/mcp");
        let wanted = format!("{}\nkept\n{shown}:\nmcp\n\n{shown}/mcp:\none\n", cwd.display());
        assert_eq!(kept(&data, at, &line), wanted, "{user}");
        assert_eq!(fs::read_to_string(cwd.join("new")).unwrap(), "new\n");
        assert!(!data.join("mcp/x").exists());
        // Elsewhere it runs as it ever did, and is who it is.
        let elsewhere = kept(&data, (user, root.path()), "pwd; id -u; echo y >y; cat y");
        assert_eq!(elsewhere, format!("{}\n{user}\ny\n", root.path().display()));
    }
}

/// By default a server runs in a folder of its own.
#[tokio::test]
async fn a_server_runs_in_a_folder_of_its_own_and_finds_no_token() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let said = home.path().join("said");
    let line = format!(
        "{{ pwd; ls; cat token ../../token {data}/token; echo over; }} >{said} 2>/dev/null; cat",
        data = home.data().display(),
        said = said.display()
    );
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    let config = format!(
        "[[mcp_servers]]\nname = \"one\"\ncommand = \"/bin/sh\"\nargs = [\"-c\", '''{line}''']\n"
    );
    fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let text = until("the server to look around", async || {
        let text = fs::read_to_string(&said).unwrap_or_default();
        Ok(text.ends_with("over\n").then_some(text))
    })
    .await?;
    let folder = home.data().join("mcp/one");
    assert_eq!(text, format!("{}\nover\n", folder.display()));
    assert!(home.data().join("token").exists(), "there was one to be found");
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    node.stop().await
}
