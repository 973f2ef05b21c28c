"""Snapshots of a workspace: content-addressed, incremental, and restorable path by path.

    history = SnapshotHistory("/data/snapshots/project", "/home/me/project")
    first = history.take()                              unchanged files are not read
    for change in history.compare(first.id): …          changes from the files of now to the snapshot
    history.restore(first.id)                           takes a snapshot first, so that it can be undone

A snapshot is a tree of blobs, as in git: a blob for each folder, and one for each megabyte of a file. Equal folders of
two snapshots are the same blob. `blobs` stores them, `trees` encodes them, `scan` reads a folder, `restore` writes it,
`compare` lists differences, and `history` has the list of snapshots of one workspace.
"""
