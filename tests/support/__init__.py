"""What several tests share: builders, and real parts that misbehave on request. An index:

Values      builders (objects with defaults), fleets and random_fleets (fleets as text),
            wrong_documents, manifests
            (fleets as Kubernetes objects), field_histories (in git), slices, cluster_views,
            scheduling, gguf_models, mlx_models, memory, schema_probes, bombs (a few KB that say
            gigabytes)
Our programs
            reconciler (a machine with both commands), forked and fork_server (how they start),
            owner, served_node, agents (an agent as seen from the network), pods, engines, routers;
            one_pass, two_versions with answering (what is said, compared)
Their programs
            llama_server, kube_binaries, prometheus, real_models (once, kept by cache), chromium,
            cluster, helm, installed, cluster_fleet, bench_jobs, crds, other_crds, kube_world,
            kube_schemas, cluster_wipe, cluster_requests, systemctl, llmkube, keda,
            counting_engine,
            servers (an engine with bad manners)
Servers     serving (what they share), http, git_http, hub, registry, package_index, wheels,
            forge_api, certificates, few_objects, fault_proxy; distribution (a real registry)
In memory   targets, pure_cluster, kube_live, said
Chaos       rounds, chaos, chaos_node, faults; cluster_chaos, cluster_declared, cluster_faults,
            cluster_hands, cluster_laws, beside_cluster
Clients     client, steady
A machine   machines (as drivers and kernels answer), pids, ports, platforms, tools, wait, repos,
            no_locks, small_disk, bent_machine, as_mac, damage (of a file)
Pages       command_lines, typed_pages
"""
