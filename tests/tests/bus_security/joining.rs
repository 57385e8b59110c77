//! A join token is good once, in its time, for its cluster and its role; anything else is refused
//! before the node takes any work, with exit code 77 (not allowed) or 78 (wrong).

use std::os::unix::fs::PermissionsExt;

use clawnode_nats::auth::{Authority, BusRole, JoinToken};
use clawnode_proto::subject::Prefix;

use crate::support::{Operator, Result, host, node, now, refused};

/// A token of `authority` for this role that was good for `life` seconds, from so long ago.
fn token(operator: &Operator, authority: &mut Authority, ago: u64, life: u64) -> Result<String> {
    let credential = authority.issue(BusRole::Worker, "w", now() - ago, 3_600)?;
    let token = JoinToken {
        urls: operator.urls.clone(),
        ca: std::fs::read_to_string(operator.ca())?,
        prefix: Prefix::default(),
        cluster: "01ABC".to_owned(),
        role: BusRole::Worker,
        admission: authority.brief(BusRole::Admission, Some(&credential), now() - ago, life)?,
        offer: Some(credential.digest()),
    };
    Ok(token.to_text()?)
}

#[tokio::test]
async fn a_token_for_nats_is_good_once_in_its_time_for_its_cluster() -> Result {
    let operator = Operator::new(1).await?;
    let made = operator.token("worker").await?;
    let text = made["token"].as_str().unwrap();

    // Another role than the token's, before anything is asked of anybody.
    let home = host(text)?;
    let wrong = refused(&home, "gateway").await?;
    assert_eq!(wrong.code, 77, "{wrong:?}");
    assert!(wrong.err.contains("for a worker") && wrong.err.contains("gateway"), "{wrong:?}");

    // Used: by this host, which may come back with it, and by no other.
    node(&home, "worker").await?.stop().await?;
    node(&home, "worker").await?.stop().await?;
    let again = refused(&host(text)?, "worker").await?;
    assert_eq!(again.code, 77, "{again:?}");
    assert!(again.err.contains("used already"), "{again:?}");

    // Its secret is where only its owner reads, and is not what the token held alone.
    let creds = home.data().join("bus/node.creds");
    assert_eq!(std::fs::metadata(&creds)?.permissions().mode() & 0o777, 0o600);
    for text in [std::fs::read_to_string(home.data().join("bus/member.json"))?, again.err] {
        // A seed begins so; in the middle of a public key it may be by chance.
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(!words.any(|word| word.starts_with("SUA")) && !text.contains("eyJ"), "{text}");
    }

    // The stored credential is for its role too.
    let stored = refused(&home.var("CLAWNODE_JOIN", ""), "gateway").await?;
    assert_eq!(stored.code, 77, "{stored:?}");

    // Over, of another operator, never offered, garbled, no token at all, and beside `--nats`.
    let mut authority = operator.authority()?;
    let mut foreign = Authority::new("other", &Prefix::default())?;
    let over = token(&operator, &mut authority, 100, 10)?;
    let alien = token(&operator, &mut foreign, 0, 600)?;
    let unoffered = token(&operator, &mut authority, 0, 600)?;
    for (text, code, words) in [
        (over, 77, "refuses the join token"),
        (alien, 77, "refuses the join token"),
        (unoffered, 77, "used already"),
        (text.split_at(text.len() - 7).0.to_owned(), 78, "garbled"),
        ("hello".to_owned(), 78, "not a join token"),
        ("cnjoin9_abc".to_owned(), 78, "another version"),
    ] {
        let home = host(&text)?;
        let ended = refused(&home, "worker").await?;
        assert_eq!(ended.code, code, "{words}: {ended:?}");
        assert!(ended.err.contains(words), "{words}: {ended:?}");
        assert!(!home.data().join("bus/node.creds").exists(), "{words}");
    }
    let beside = host(text)?.var("CLAWNODE_CLUSTER__NATS", "nats://127.0.0.1:1");
    let ended = refused(&beside, "worker").await?;
    assert!(ended.code == 78 && ended.err.contains("--nats"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_node_of_one_cluster_does_not_join_another_on_nats() -> Result {
    let (first, second) = (Operator::new(1).await?, Operator::new(1).await?);
    let token = first.token("worker").await?;
    let home = host(token["token"].as_str().unwrap())?;
    node(&home, "worker").await?.stop().await?;
    let other = second.token("worker").await?;
    let home = home.var("CLAWNODE_JOIN", other["token"].as_str().unwrap());
    let ended = refused(&home, "worker").await?;
    assert_eq!(ended.code, 78, "{ended:?}");
    let cluster = token["cluster"].as_str().unwrap();
    assert!(ended.err.contains(cluster) && ended.err.contains("--data-dir"), "{ended:?}");
    // The token was not used up by that.
    let fresh = host(other["token"].as_str().unwrap())?;
    node(&fresh, "worker").await?.stop().await?;
    Ok(())
}
