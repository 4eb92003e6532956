# SPDX-License-Identifier: Apache-2.0

"""The built documentation: its links, and how a browser lays it out.

``tox -e docs`` runs these after it has built the site.
"""

import functools
import html.parser
import http.server
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]
SITE = ROOT / 'doc' / 'build' / 'html'
LOOK = pathlib.Path(__file__).with_name('look.js')

#: Names of the browser, the smallest one first.
BROWSERS = ('chromium-headless-shell', 'chromium', 'google-chrome')

#: Of a desktop and of a phone.
WIDTHS = (1280, 390)

#: Seconds until a browser that has reported nothing counts as hung.
PATIENCE = 120

#: Pages that Sphinx makes by itself.
GENERATED = {'genindex.html', 'search.html', 'py-modindex.html'}

#: What a site of openstack.org has in it.
FOREIGN = ('googletagmanager', 'search.openstack.org', 'openstackdocs',
           'creativecommons.org')


class Page(html.parser.HTMLParser):
    """The links, the anchors and the chapters of a page."""

    def __init__(self, path):
        super().__init__()
        self.links = []
        self.anchors = {''}
        self.chapters = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if named.get('id'):
            self.anchors.add(named['id'])
        if tag in ('a', 'link') and named.get('href'):
            self.links.append(named['href'])
        if tag in ('img', 'script') and named.get('src'):
            self.links.append(named['src'])
        self.chapters += (tag == 'p' and named.get('class') == 'caption')


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, the script that looks, and takes what it found."""

    def __init__(self, found, pages, *args, **kwargs):
        self._found = found
        self._pages = pages
        super().__init__(*args, directory=SITE, **kwargs)

    def do_GET(self):
        own = {
            '/look.html': ('text/html', b'<!doctype html><meta charset=utf-8>'
                           b'<body><script src=/look.js></script>'),
            '/look.js': ('text/javascript', LOOK.read_bytes()),
            '/pages.json': ('application/json', json.dumps(
                {'pages': self._pages, 'widths': WIDTHS}).encode())}
        if self.path not in own:
            super().do_GET()
            return
        kind, body = own[self.path]
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        size = int(self.headers['Content-Length'])
        self._found.put(json.loads(self.rfile.read(size)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


class SiteTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pages = {
            str(path.relative_to(SITE)): Page(path)
            for path in sorted(SITE.rglob('*.html'))
            if '_static' not in path.parts}

    def setUp(self):
        super().setUp()
        self.assertIn('index.html', self.pages, f'{SITE}: nothing is built')

    def test_no_link_is_dead(self):
        dead = []
        for name, page in self.pages.items():
            for link in page.links:
                url = urllib.parse.urlsplit(link)
                if url.scheme or url.netloc:
                    continue
                path = (SITE / name).parent / urllib.parse.unquote(
                    url.path) if url.path else SITE / name
                path = path.resolve()
                if not path.is_file():
                    dead.append(f'{name}: {link}')
                    continue
                target = self.pages.get(str(path.relative_to(SITE)))
                if target and urllib.parse.unquote(
                        url.fragment) not in target.anchors:
                    dead.append(f'{name}: {link}')
        self.assertEqual([], dead)

    def test_each_page_has_the_tree(self):
        self.assertEqual([], [name for name, page in self.pages.items()
                              if page.chapters < 7])

    def test_nothing_is_of_another_site(self):
        self.assertEqual([], [
            f'{name}: {word}' for name in self.pages for word in FOREIGN
            if word in (SITE / name).read_text().split('<article')[0]
            + (SITE / name).read_text().rpartition('</article>')[2]])

    def test_layout(self):
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        self.assertIsNotNone(
            browser, 'apt-get install chromium-headless-shell')
        self.assertEqual([], self._look(browser))

    def _look(self, browser):
        found = queue.SimpleQueue()
        server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), functools.partial(
                Handler, found, sorted(self.pages.keys() - GENERATED)))
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(profile.cleanup)
        # A container has no user namespaces for the sandbox; the pages are
        # ours.
        log = tempfile.TemporaryFile()
        self.addCleanup(log.close)
        process = subprocess.Popen(
            [browser, '--headless', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--remote-debugging-port=0',
             f'--user-data-dir={profile.name}', '--window-size=1400,900',
             f'http://127.0.0.1:{server.server_port}/look.html'],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True)
        try:
            return found.get(timeout=PATIENCE)
        except queue.Empty:
            log.seek(0)
            self.fail(f'{browser}: nothing in {PATIENCE} s\n'
                      + log.read().decode()[-2000:])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


if __name__ == '__main__':
    unittest.main()
