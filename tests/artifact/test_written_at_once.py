"""Processes that write into one folder at once: each file is of the same one, and none fails."""

from multiprocessing import get_context

from mlagen.disk import write_files

NAMES = "abcdefgh"


def write(folder, number):
    for _ in range(40):
        write_files(folder, {name: bytes([number]) for name in NAMES})


def test_files_of_two_are_not_mixed(tmp_path):
    for _ in range(6):
        running = [get_context("fork").Process(target=write, args=(tmp_path, n)) for n in range(4)]
        for process in running:
            process.start()
        for process in running:
            process.join()
        assert [process.exitcode for process in running] == [0] * 4
        assert len({(tmp_path / name).read_bytes() for name in NAMES}) == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == list(NAMES)
