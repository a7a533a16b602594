import "@douyinfe/semi-ui/dist/css/semi.css";
import React from "react";
import { createRoot } from "react-dom/client";
import { Button, Checkbox, Collapse, DatePicker, Dropdown, InputNumber, Input, Modal, Pagination, Radio, RadioGroup, Rating, Select,
  Slider, Switch, Table, TabPane, Tabs, TagInput, TextArea, Tree, Upload } from "@douyinfe/semi-ui";

const Row = ({ label, children }) => <p style={{ display: "flex", margin: 4, maxWidth: 460 }}>
  <label style={{ width: 90 }}>{label}</label><span style={{ flex: 1 }}>{children}</span></p>;
const CITIES = ["Oslo", "Rome", "Lima"].map((value) => ({ value, label: value }));
const Entry = () => <>
  <Row label="Name"><Input id="name" showClear defaultValue="Ann" /></Row><Row label="Amount"><InputNumber id="amount" defaultValue={2} /></Row>
  <Row label="City"><Select id="city" optionList={CITIES} defaultValue="Oslo" style={{ width: 200 }} /></Row>
  <Row label="Tags"><Select id="tags" multiple filter optionList={CITIES} defaultValue={["Rome"]} style={{ width: 200 }} /></Row>
  <Row label="Day"><DatePicker className="day" defaultValue="2026-05-04" /></Row>
  <Row label="Words"><TagInput className="words" defaultValue={["one"]} /></Row><Row label="Size"><Slider defaultValue={30} /></Row>
  <Row label="Stars"><Rating defaultValue={3} /></Row><Row label="Live"><Switch id="live" aria-label="Live" /></Row>
  <Row label="By"><RadioGroup><Radio value="air">Air</Radio><Radio value="sea">Sea</Radio></RadioGroup></Row>
  <Row label=""><Checkbox id="agree">Agree</Checkbox></Row><Row label="Notes"><TextArea id="notes" /></Row>
  <Button id="send" theme="solid">Send</Button><Upload action="#"><Button id="file">File</Button></Upload></>;
const COLUMNS = [{ title: "Who", dataIndex: "who", sorter: (a, b) => (a.who > b.who ? 1 : -1) },
  { title: "Do", render: (_, { who }) => <Button className={`edit-${who}`} size="small">Edit</Button> }];
const TREE = [{ label: "Fruit", value: "fruit", key: "fruit", children: [{ label: "Pear", value: "pear", key: "pear" }] }];
const More = () => {
  const [isShown, setShown] = React.useState(false);
  return <><Table columns={COLUMNS} dataSource={["Ann", "Bob", "Cid"].map((who) => ({ who, key: who }))} pagination={false} size="small"
    rowSelection={{}} /><Tree treeData={TREE} defaultExpandAll /><Pagination total={60} pageSize={10} />
  <Collapse><Collapse.Panel header="Details" itemKey="1">text</Collapse.Panel></Collapse>
  <Dropdown trigger="click" render={<Dropdown.Menu><Dropdown.Item>Cut</Dropdown.Item><Dropdown.Item>Copy</Dropdown.Item></Dropdown.Menu>}>
    <Button id="menu">Menu</Button></Dropdown><Button id="dialog" onClick={() => setShown(true)}>Dialog</Button>
  <Modal title="Sure?" visible={isShown} onCancel={() => setShown(false)} okText="Yes" cancelText="No" motion={false}>Really</Modal></>;
};
createRoot(document.getElementById("app")).render(<Tabs><TabPane tab="Entry" itemKey="e"><Entry /></TabPane>
  <TabPane tab="More" itemKey="m"><More /></TabPane></Tabs>);
