//! Memories are found by their meaning, with the vectors of a provider or of a model in the node.

use std::fs;

use clawnode_proto::memory_view::{MemorySearchView, MemoryStats};
use clawnode_tests::{
    model::{ModelServer, Setup},
    process::{Home, Node, TestBackend},
    static_model,
    wait::until,
};
use serde_json::json;

use super::Outcome;

/// The provider's vectors follow from the first bytes of a text, so these two mean the same and share no word.
const POINT: &str = "Regenbogenfarben";
const QUERY: &str = "Regenbogen?";
const OTHER: &str = "zzzz 9999";

/// Also after a restart, whose vectors are those of the files.
#[tokio::test]
async fn what_shares_no_word_is_found_by_the_vectors_of_a_provider() -> Outcome {
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::default() };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local)?.openai(&server);
    let settings = home.path().join(".config/clawnode");
    fs::create_dir_all(&settings).unwrap();
    fs::write(settings.join("config.toml"), "[memory]\nembeddings = 'openai/embedder'\n").unwrap();
    let node = Node::up(&home).await?;
    for text in [POINT, OTHER] {
        let put = home.run(&["memory", "put", "default/all", text]).await?;
        assert_eq!(put.code, 0, "{put:?}");
    }
    for node in [Some(node), None] {
        let node = match node {
            Some(node) => node,
            None => Node::up(&home).await?,
        };
        let client = node.client()?;
        until("a vector of each point", async || {
            let asked = json!({ "memory": "default/all" });
            let stats: MemoryStats = client.call("memory.stats", asked).await?;
            let meaning = stats.stored.and_then(|stored| stored.meaning);
            let is_whole = meaning.is_some_and(|meaning| {
                (meaning.vectors, meaning.documents, meaning.dimensions) == (2, 2, 8)
            });
            Ok(is_whole.then_some(()))
        })
        .await?;
        let asked = json!({ "memory": "default/all", "query": QUERY });
        // A search leaves out what it could not read in time.
        let is_whole = |view: &MemorySearchView| view.degraded.is_empty();
        let view: MemorySearchView = client.call_when("memory.search", asked, is_whole).await?;
        let best = view.found.first().unwrap();
        let (words, meaning) = (best.score.words, best.score.meaning);
        assert_eq!((best.text.as_str(), words, meaning), (POINT, 0.0, Some(1.0)), "{view:?}");
        node.stop().await?;
    }
    Ok(())
}

/// Without a provider, and with nothing of the network. Other files are another model.
#[tokio::test]
async fn what_shares_no_word_is_found_by_a_model_in_the_node() -> Outcome {
    let home = Home::new(TestBackend::Local)?;
    let settings = home.path().join(".config/clawnode");
    static_model::write(
        &settings.join("model"),
        &[("[UNK]", [9.0, 9.0]), ("car", [1.0, 0.1]), ("vehicle", [1.0, 0.0]), ("tea", [0.0, 1.0])],
    )
    .unwrap();
    // The folder is relative to the file.
    let config = "[memory]\nembeddings = 'static'\nembeddings_dir = 'model'\n";
    fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let client = node.client()?;
    for text in ["My car is red.", "The tea is at four."] {
        let put = home.run(&["memory", "put", "default/all", text]).await?;
        assert_eq!(put.code, 0, "{put:?}");
    }
    until("the nearest first", async || {
        let asked = json!({ "memory": "default/all", "query": "vehicle" });
        let view: MemorySearchView = client.call("memory.search", asked).await?;
        let best = view.found.first().filter(|best| best.score.meaning == Some(1.0));
        Ok(best.filter(|best| best.text == "My car is red.").map(|_| ()))
    })
    .await?;
    let doctor = home.run(&["doctor", "--json"]).await?;
    assert!(doctor.out.contains("(4 tokens, vectors of 2 numbers)"), "{doctor:?}");
    node.stop().await?;

    fs::remove_file(settings.join("model/model.safetensors")).unwrap();
    let doctor = home.run(&["doctor", "--json"]).await?;
    assert!(doctor.out.contains("model.safetensors"), "{doctor:?}");
    let checked = home.run(&["config", "check"]).await?;
    assert!(checked.code == 78 && checked.err.contains("model.safetensors"), "{checked:?}");
    let refused = home.run(&["up"]).await?;
    assert!(refused.code != 0 && refused.err.contains("model.safetensors"), "{refused:?}");
    Ok(())
}
